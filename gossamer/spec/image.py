"""Write and check experiment images and shards (SPEC.md 10, 11)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
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
    Init,
)
from gossamer.spec.errors import MalformedError
from gossamer.spec.nn import Model, faults

_HEADER = struct.Struct("<IHHII")
_WORDS = struct.Struct("<" + "".join({"u": "I", "f": "f"}[kind] for kind in CONFIG_WORDS.values()))


def _dtype(feature_type: int) -> np.dtype[Any]:
    return np.dtype({FeatureType.U8: "u1", FeatureType.F32: "<f4"}[FeatureType(feature_type)])


def _samples(x: NDArray[Any], y: NDArray[Any], feature_type: int) -> bytes:
    """Return labels, zero bytes up to a multiple of 4, then features row by row."""
    dtype = _dtype(feature_type)
    if len(x) != len(y) or x.dtype != dtype:
        raise ValueError(f"{len(x)} rows of {x.dtype} for {len(y)} labels; features must be {dtype}")
    if len(y) and not 0 <= y.min() <= y.max() <= 255:
        raise ValueError(f"labels from {y.min()} to {y.max()}; they are bytes, 0 to 255")
    labels = y.astype(np.uint8).tobytes()
    return labels + bytes(-len(labels) % 4) + np.ascontiguousarray(x).tobytes()


@dataclass(frozen=True)
class Image:
    """Hold what an image does: words, given parameters [G], test features [n, d0] as stored and labels [n]."""

    config: dict[str, int | float]
    given: NDArray[np.float32]
    test_x: NDArray[Any]
    test_y: NDArray[np.uint8]


_NONE = np.zeros(0, np.float32)


def build_image(
    config: Mapping[str, int | float], test_x: NDArray[Any], test_y: NDArray[Any], given: NDArray[np.float32] = _NONE
) -> bytes:
    """Return the image of an experiment; `test_x` is [n, d0] as stored, `test_y` [n], `given` the given parameters."""
    if set(config) != set(CONFIG_WORDS):
        raise ValueError(f"words missing or unknown: {sorted(set(config) ^ set(CONFIG_WORDS))}")
    model = Model.from_words(config)
    if test_x.shape != (config["test_count"], model.input.numbers):
        raise ValueError(f"test features are {test_x.shape}, not [test_count, d_0] of the config")
    if given.shape != (model.given(Init(int(config["init"]))),) or given.dtype != np.float32:
        raise ValueError(f"given parameters are {given.dtype} {given.shape}, not those of the config")
    words = _WORDS.pack(*(config[name] for name in CONFIG_WORDS))
    body = words + given.astype("<f4").tobytes() + _samples(test_x, test_y, int(config["feature_type"]))
    total_bytes = IMAGE_HEADER_BYTES + len(body)
    return _HEADER.pack(IMAGE_MAGIC, SPEC_VERSION, WIRE_VERSION, total_bytes, zlib.crc32(body)) + body


def parse_image(image: bytes) -> Image:
    """Take an image apart; raises MalformedError."""
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
    count, feature_type = int(config["test_count"]), int(config["feature_type"])
    if feature_type not in FEATURE_BYTES:
        raise MalformedError(f"the image's feature_type is {feature_type}, not one of {sorted(FEATURE_BYTES)}")
    width, given = _sizes(config)
    at = IMAGE_HEADER_BYTES + _WORDS.size
    labels_at = at + 4 * given
    features_at = labels_at + count + (-count % 4)
    if len(image) != features_at + count * width * FEATURE_BYTES[feature_type]:
        held = f"{given} parameters and {count} test samples of {width} features"
        raise MalformedError(f"the image does not hold {held}")
    return Image(
        config,
        np.frombuffer(image, "<f4", given, at).astype(np.float32),
        np.frombuffer(image, _dtype(feature_type), count * width, features_at).reshape(count, width),
        np.frombuffer(image, np.uint8, count, labels_at),
    )


def _sizes(config: Mapping[str, int | float]) -> tuple[int, int]:
    """Return d_0 and the count of given parameters; raises MalformedError for a model that cannot be."""
    try:
        model, init = Model.from_words(config), Init(int(config["init"]))
    except ValueError as error:
        raise MalformedError(f"the image's model: {error}") from error
    for fault in faults(model.input, model.layers):
        where = "" if fault.layer is None else f"layer{fault.layer}_"
        raise MalformedError(f"the image's {where}{fault.word}: {fault.what}")
    for name, value in model.words().items():
        if config[name] != value:  # no truth value, or the word of a layer beyond the last
            raise MalformedError(f"the image's {name}: is {config[name]}; allowed {value}")
    return model.input.numbers, model.given(init)


def shard_bytes(node: int, x: NDArray[Any], y: NDArray[Any], feature_type: int) -> bytes:
    """Return a node's shard as PROVISION carries it; x is [n, d0] as stored, y [n]."""
    return struct.pack("<II", node, len(x)) + _samples(x, y, feature_type)
