"""Run experiments on emulated boards: the firmware for the ESP32-S3's processor, one QEMU a node."""

from twin_emu.firmware import node_image
from twin_emu.process import EmuPlace

__all__ = ["EmuPlace", "node_image"]
