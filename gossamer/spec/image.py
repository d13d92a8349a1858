"""Write and check experiment images and shards (SPEC.md 10, 11)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.spec.constants import (
    CONFIG_WORDS,
    FEATURE_BYTES,
    IMAGE_HEADER_BYTES,
    IMAGE_MAGIC,
    SPEC_VERSION,
    WIRE_VERSION,
    FeatureType,
)
from gossamer.spec.errors import MalformedError

_HEADER = struct.Struct("<IHHII")
_WORDS = struct.Struct("<" + "".join({"u": "I", "f": "f"}[kind] for kind in CONFIG_WORDS.values()))


def _samples(x: NDArray[Any], y: NDArray[Any], feature_type: int) -> bytes:
    """Return labels, zero bytes up to a multiple of 4, then features row by row."""
    dtype = np.uint8 if feature_type == FeatureType.U8 else np.dtype("<f4")
    if len(x) != len(y) or x.dtype != dtype:
        raise ValueError(f"{len(x)} rows of {x.dtype} for {len(y)} labels; features must be {np.dtype(dtype)}")
    labels = y.astype(np.uint8).tobytes()
    return labels + bytes(-len(labels) % 4) + np.ascontiguousarray(x).tobytes()


def build_image(config: Mapping[str, int | float], test_x: NDArray[Any], test_y: NDArray[Any]) -> bytes:
    """Return the image of an experiment; `test_x` is [n, d0] as stored, `test_y` [n]."""
    if set(config) != set(CONFIG_WORDS):
        raise ValueError(f"words missing or unknown: {sorted(set(config) ^ set(CONFIG_WORDS))}")
    words = _WORDS.pack(*(config[name] for name in CONFIG_WORDS))
    body = words + _samples(test_x, test_y, int(config["feature_type"]))
    return _HEADER.pack(IMAGE_MAGIC, SPEC_VERSION, WIRE_VERSION, IMAGE_HEADER_BYTES + len(body), zlib.crc32(body)) + body


def parse_image(image: bytes) -> tuple[dict[str, int | float], NDArray[Any], NDArray[np.uint8]]:
    """Return config, test features [n, d0] and labels [n]; raises MalformedError."""
    if len(image) < IMAGE_HEADER_BYTES + _WORDS.size:
        raise MalformedError(f"an image of {len(image)} bytes is too short")
    magic, spec_version, wire_version, total, crc = _HEADER.unpack_from(image)
    for what, found, expected in (
        ("magic", magic, IMAGE_MAGIC),
        ("spec version", spec_version, SPEC_VERSION),
        ("wire version", wire_version, WIRE_VERSION),
        ("length", total, len(image)),
        ("CRC", crc, zlib.crc32(image[IMAGE_HEADER_BYTES:])),
    ):
        if found != expected:
            raise MalformedError(f"the image's {what} is {found}, not {expected}")
    config = dict(zip(CONFIG_WORDS, _WORDS.unpack_from(image, IMAGE_HEADER_BYTES), strict=True))
    count, width = int(config["test_count"]), int(config["dim0"])
    at = IMAGE_HEADER_BYTES + _WORDS.size
    features_at = at + count + (-count % 4)
    if len(image) != features_at + count * width * FEATURE_BYTES[int(config["feature_type"])]:
        raise MalformedError(f"the image does not hold {count} test samples of {width} features")
    dtype = np.uint8 if config["feature_type"] == FeatureType.U8 else np.dtype("<f4")
    features = np.frombuffer(image, dtype, count * width, features_at).reshape(count, width)
    return config, features, np.frombuffer(image, np.uint8, count, at)


def shard_bytes(node: int, x: NDArray[Any], y: NDArray[Any], feature_type: int) -> bytes:
    """Return a node's shard as PROVISION carries it; x is [n, d0] as stored, y [n]."""
    return struct.pack("<II", node, len(x)) + _samples(x, y, feature_type)
