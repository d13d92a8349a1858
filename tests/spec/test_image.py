"""Images and shards against bytes written by hand (SPEC.md 10, 11)."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec.constants import CONFIG_WORDS, FeatureType
from gossamer.spec.errors import MalformedError
from gossamer.spec.image import build_image, parse_image, shard_bytes

WORDS_BYTES = 4 * 75
LABELS_AT = 16 + WORDS_BYTES


def config(**changes: int | float) -> dict[str, int | float]:
    """Give every word another value, so that a word in another's place shows."""
    words = {name: float(i) + 0.25 if kind == "f" else i for i, (name, kind) in enumerate(CONFIG_WORDS.items())}
    return words | {"dim0": 2, "test_count": 3, "feature_type": FeatureType.U8} | changes


def sealed(body: bytes, magic: int = 0x4D495347, spec: int = 1, wire: int = 1) -> bytes:
    return struct.pack("<IHHII", magic, spec, wire, 16 + len(body), zlib.crc32(body)) + body


X8 = np.array([[1, 2], [3, 4], [5, 255]], np.uint8)
X32 = np.array([[1.0, -2.0], [0.5, 0.0], [-0.0, 4.0]], np.float32)
Y = np.array([7, 0, 9], np.uint8)
IMAGE = build_image(config(), X8, Y)


def test_image_by_hand() -> None:
    assert IMAGE[:4] == b"GSIM"
    assert IMAGE[4:16] == struct.pack("<HHII", 1, 1, len(IMAGE), zlib.crc32(IMAGE[16:]))
    assert IMAGE[LABELS_AT:] == bytes([7, 0, 9, 0]) + bytes([1, 2, 3, 4, 5, 255])
    # Words: two of the seed, three counts, nine widths, init, batch, local_steps; the next is lr, a float.
    assert struct.unpack_from("<IIIII", IMAGE, 16) == (0, 1, 2, 3, 4)
    assert struct.unpack_from("<III", IMAGE, 16 + 4 * 5) == (2, 6, 7)
    assert struct.unpack_from("<f", IMAGE, 16 + 4 * 17) == (17.25,)
    assert struct.unpack_from("<I", IMAGE, LABELS_AT - 4) == (3,)


def test_float_features_by_hand() -> None:
    image = build_image(config(feature_type=FeatureType.F32), X32, Y)
    assert image[LABELS_AT:].hex() == "070009000000803f000000c00000003f000000000000008000008040"


@pytest.mark.parametrize(("x", "kind"), [(X8, FeatureType.U8), (X32, FeatureType.F32)])
def test_image_round_trips(x: Any, kind: FeatureType) -> None:
    words, features, labels = parse_image(build_image(config(feature_type=kind), x, Y))
    assert words == config(feature_type=kind) and list(words) == list(CONFIG_WORDS)
    assert features.dtype == x.dtype and features.tobytes() == x.tobytes() and features.shape == x.shape
    assert labels.tolist() == [7, 0, 9]


def test_an_image_without_test_samples() -> None:
    words, features, labels = parse_image(build_image(config(test_count=0), X8[:0], Y[:0]))
    assert words["test_count"] == 0 and features.shape == (0, 2) and len(labels) == 0


def test_config_words_are_stored_as_binary32() -> None:
    assert parse_image(build_image(config(lr=0.1), X8, Y))[0]["lr"] == float.fromhex("0x1.99999ap-4")


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "0 bytes is too short"),
        (IMAGE[: LABELS_AT - 1], "too short"),
        (sealed(IMAGE[16:], magic=0x4D495348), "magic is 1296651080, not 1296651079"),
        (sealed(IMAGE[16:], spec=2), "spec version is 2, not 1"),
        (sealed(IMAGE[16:], wire=9), "wire version is 9, not 1"),
        (sealed(IMAGE[16:], magic=0, spec=2), "magic"),  # the first that is wrong is named
        (IMAGE[:-1], "length"),
        (IMAGE + b"\0", "length"),
        (IMAGE[:-1] + b"\0", "CRC"),
        (sealed(IMAGE[16:-1]), "does not hold 3 test samples of 2 features"),
        (sealed(IMAGE[16:] + b"\0"), "does not hold 3 test samples of 2 features"),
    ],
)
def test_what_is_wrong_is_named(image: bytes, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        parse_image(image)


def test_an_unknown_feature_type_is_named() -> None:
    body = bytearray(IMAGE[16:])
    at = 4 * list(CONFIG_WORDS).index("feature_type")
    body[at : at + 4] = struct.pack("<I", 5)
    with pytest.raises(MalformedError, match="feature_type is 5"):
        parse_image(sealed(bytes(body)))


@given(st.integers(0, 8 * len(IMAGE) - 1))
def test_one_changed_bit_is_found(place: int) -> None:
    image = bytearray(IMAGE)
    image[place // 8] ^= 1 << place % 8
    with pytest.raises(MalformedError):
        parse_image(bytes(image))


@given(st.binary(max_size=400))
def test_parse_survives_garbage(body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_image(body)
    try:
        parse_image(sealed(body))
    except MalformedError:
        pass


def test_shard_by_hand() -> None:
    assert shard_bytes(258, X8, Y, FeatureType.U8).hex() == "0201000003000000070009000102030405ff"
    five = shard_bytes(1, np.zeros((5, 1), np.float32), np.arange(5), FeatureType.F32)
    assert five.hex() == "01000000050000000001020304000000" + "00" * 20


@pytest.mark.parametrize(
    ("x", "y", "kind", "reason"),
    [
        (X8, Y[:2], FeatureType.U8, "3 rows of uint8 for 2 labels"),
        (X8, Y, FeatureType.F32, "features must be float32"),
        (X32.astype(np.float64), Y, FeatureType.F32, "rows of float64"),
        (X8, np.array([0, 1, 256]), FeatureType.U8, "labels from 0 to 256"),
        (X8, np.array([0, 1, -1]), FeatureType.U8, "labels from -1 to 1"),
    ],
)
def test_samples_that_would_not_survive_are_refused(x: Any, y: Any, kind: FeatureType, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        shard_bytes(0, x, y, kind)


def test_a_config_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\['extra'\]"):
        build_image(config() | {"extra": 1}, X8, Y)
    with pytest.raises(ValueError, match=r"\['lr'\]"):
        build_image({name: value for name, value in config().items() if name != "lr"}, X8, Y)
    with pytest.raises(ValueError, match=r"\(3, 2\), not \[test_count, dim0\]"):
        build_image(config(test_count=2), X8, Y)
