"""Talk to nodes by frames: the coordinator of a run, and what carries its frames."""

from gossamer.link.coordinator import Coordinator, Transport

__all__ = ["Coordinator", "Transport"]
