"""Images and shards against bytes written by hand (SPEC.md 10, 11)."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec.constants import CONFIG_WORDS, LAYER_WORDS, FeatureType, Init, LayerKind
from gossamer.spec.errors import MalformedError
from gossamer.spec.image import build_image, parse_image, shard_bytes
from gossamer.spec.nn import Layer, Model, Shape

WORDS_BYTES = 4 * 457
LABELS_AT = 16 + WORDS_BYTES


MODEL = Model(Shape(1, 2, 1), (Layer(LayerKind.DENSE, True, 3), Layer(LayerKind.DENSE, outputs=4)))


def config(**changes: int | float) -> dict[str, int | float]:
    """Give every word another value, so that a word in another's place shows."""
    words = {name: float(i) + 0.25 if kind == "f" else i for i, (name, kind) in enumerate(CONFIG_WORDS.items())}
    words |= MODEL.words() | {"init": Init.HE}
    return words | {"test_count": 3, "feature_type": FeatureType.U8} | changes


def sealed(body: bytes, magic: int = 0x4D495347, spec: int = 2, wire: int = 1) -> bytes:
    return struct.pack("<IHHII", magic, spec, wire, 16 + len(body), zlib.crc32(body)) + body


NOT_OF_DENSE = (
    "kernel_height",
    "kernel_width",
    "stride_height",
    "stride_width",
    "padding",
    "groups",
    "source",
    "rate24",
)

X8 = np.array([[1, 2], [3, 4], [5, 255]], np.uint8)
X32 = np.array([[1.0, -2.0], [0.5, 0.0], [-0.0, 4.0]], np.float32)
Y = np.array([7, 0, 9], np.uint8)
IMAGE = build_image(config(), X8, Y)


def test_image_by_hand() -> None:
    assert IMAGE[:4] == b"GSIM"
    assert IMAGE[4:16] == struct.pack("<HHII", 2, 1, len(IMAGE), zlib.crc32(IMAGE[16:]))
    assert IMAGE[LABELS_AT:] == bytes([7, 0, 9, 0]) + bytes([1, 2, 3, 4, 5, 255])
    # Words: two of the seed, two counts, the input's shape, the layers and 32 times 12 words of them; then init, batch,
    # local_steps and optimizer; the next is lr, a float.
    assert struct.unpack_from("<4I", IMAGE, 16) == (0, 1, 2, 3)
    assert struct.unpack_from("<4I", IMAGE, 16 + 4 * 4) == (1, 2, 1, 2)
    assert struct.unpack_from("<12I", IMAGE, 16 + 4 * 8) == (0, 1, 3, *[0] * 9)
    assert struct.unpack_from("<12I", IMAGE, 16 + 4 * 20) == (0, 0, 4, *[0] * 9)
    assert not any(IMAGE[16 + 4 * 32 : 16 + 4 * 392])
    assert struct.unpack_from("<IIf", IMAGE, 16 + 4 * 394) == (394, 395, 396.25)
    assert struct.unpack_from("<I", IMAGE, LABELS_AT - 4) == (3,)


def test_float_features_by_hand() -> None:
    image = build_image(config(feature_type=FeatureType.F32), X32, Y)
    assert image[LABELS_AT:].hex() == "070009000000803f000000c00000003f000000000000008000008040"


@pytest.mark.parametrize(("x", "kind"), [(X8, FeatureType.U8), (X32, FeatureType.F32)])
def test_image_round_trips(x: Any, kind: FeatureType) -> None:
    image = parse_image(build_image(config(feature_type=kind), x, Y))
    assert image.config == config(feature_type=kind) and list(image.config) == list(CONFIG_WORDS)
    assert image.test_x.dtype == x.dtype and image.test_x.tobytes() == x.tobytes() and image.test_x.shape == x.shape
    assert image.test_y.tolist() == [7, 0, 9] and image.given.size == 0


def test_an_image_without_test_samples() -> None:
    image = parse_image(build_image(config(test_count=0), X8[:0], Y[:0]))
    assert image.config["test_count"] == 0 and image.test_x.shape == (0, 2) and len(image.test_y) == 0


def test_given_parameters_stand_before_the_labels() -> None:
    """Layer 1 has 9 parameters, layer 2 has 16; frozen, or with `init` given, they are in the image."""
    for changes, count in (({"layer0_frozen": 1}, 9), ({"layer1_frozen": 1}, 16), ({"init": Init.GIVEN}, 25)):
        given = np.arange(count, dtype=np.float32)
        image = build_image(config(**changes), X8, Y, given)
        assert struct.unpack_from(f"<{count}f", image, LABELS_AT) == tuple(range(count))
        assert image[LABELS_AT + 4 * count :] == IMAGE[LABELS_AT:]
        parsed = parse_image(image)
        assert parsed.given.tolist() == given.tolist() and parsed.test_y.tolist() == [7, 0, 9]
        with pytest.raises(ValueError, match="given parameters are float32"):
            build_image(config(**changes), X8, Y, given[1:])


def test_config_words_are_stored_as_binary32() -> None:
    assert parse_image(build_image(config(lr=0.1), X8, Y)).config["lr"] == float.fromhex("0x1.99999ap-4")


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "0 bytes is too short"),
        (IMAGE[: LABELS_AT - 1], "too short"),
        (sealed(IMAGE[16:], magic=0x4D495348), "magic is 1296651080, not 1296651079"),
        (sealed(IMAGE[16:], spec=1), "spec version is 1, not 2"),
        (sealed(IMAGE[16:], wire=9), "wire version is 9, not 1"),
        (sealed(IMAGE[16:], magic=0, spec=1), "magic"),  # the first that is wrong is named
        (IMAGE[:-1], "length"),
        (IMAGE + b"\0", "length"),
        (IMAGE[:-1] + b"\0", "CRC"),
        (sealed(IMAGE[16:-1]), "does not hold 0 parameters and 3 test samples of 2 features"),
        (sealed(IMAGE[16:] + b"\0"), "does not hold 0 parameters and 3 test samples of 2 features"),
    ],
)
def test_what_is_wrong_is_named(image: bytes, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        parse_image(image)


@pytest.mark.parametrize(
    ("word", "value", "reason"),
    [
        ("feature_type", 5, "feature_type is 5"),
        ("layers", 33, "model: 33 layers"),
        ("layer0_kind", 8, "8 is not a valid LayerKind"),
        ("layer1_outputs", 0, "layer1_outputs: is 0"),
        ("input_height", 0, "input_height: is 0"),
        ("init", 3, "3 is not a valid Init"),
        ("layer0_relu", 2, "layer0_relu: is 2"),
        ("layer1_frozen", 2, "layer1_frozen: is 2"),
        ("layer0_padding", 2, "2 is not a valid Padding"),
        *((f"layer0_{word}", 1, f"layer0_{word}: is 1, but DENSE has no such option") for word in NOT_OF_DENSE),
        *((f"layer{layer}_{word}", 1, f"layer{layer}_{word}: is 1") for layer in (2, 31) for word in LAYER_WORDS),
    ],
)
def test_a_word_that_nothing_can_be_is_named(word: str, value: int, reason: str) -> None:
    body = bytearray(IMAGE[16:])
    at = 4 * list(CONFIG_WORDS).index(word)
    body[at : at + 4] = struct.pack("<I", value)
    with pytest.raises(MalformedError, match=reason):
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
    with pytest.raises(ValueError, match=r"\(3, 2\), not \[test_count, d_0\]"):
        build_image(config(test_count=2), X8, Y)
