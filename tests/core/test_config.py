"""What gs_config_load takes and what it refuses, by name."""

from __future__ import annotations

import random
import struct

import pytest

import models
from gossamer.experiment import load_experiment
from gossamer.native import FIRMWARE
from gossamer.spec.constants import CONFIG_WORDS, CORE_ERRORS, PolicyKind
from tests.core.probe import image_of, library, reseal, words

NAMES = list(CONFIG_WORDS)
CODES = {code: name for name, (code, _) in CORE_ERRORS.items()}
NAN, INF = float("nan"), float("inf")


def load(image: bytes) -> tuple[str, str | None]:
    """Return the error's name and the word it names."""
    ffi, lib = library()
    bad_word = ffi.new("uint32_t *")
    exact = ffi.new(f"uint8_t[{len(image)}]", image) if image else ffi.NULL
    code = lib.probe_config(exact, len(image), bad_word)
    return CODES[code], NAMES[bad_word[0]] if bad_word[0] < len(NAMES) else None


def test_a_good_image_is_taken() -> None:
    assert load(image_of(words())) == ("OK", None)
    for policy in PolicyKind:
        assert load(image_of(words(policy=policy))) == ("OK", None), policy


def test_words_of_other_policies_may_hold_anything() -> None:
    unused = {
        "sends": 0,
        "threshold": 99,
        "base": NAN,
        "score_ema": NAN,
        "pulls": 0,
        "ratio24": 1 << 30,
        "top": 1 << 30,
    }
    assert load(image_of(words(policy=PolicyKind.DPSGD, **unused))) == ("OK", None)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"nodes": 1}, "nodes"),
        ({"nodes": 65535}, "nodes"),
        ({"rounds": 0}, "rounds"),
        ({"layers": 0}, "layers"),
        ({"layers": 33}, "layers"),
        ({"input_channels": 0}, "input_channels"),
        ({"input_width": 65536}, "input_width"),
        ({"input_height": 1024, "input_width": 1025, "input_channels": 1}, "input_height"),
        ({"layer0_outputs": 0}, "layer0_outputs"),
        ({"layer1_outputs": 65536}, "layer1_outputs"),
        ({"layer2_outputs": 257}, "layers"),
        ({"layer0_outputs": 65535, "layer1_outputs": 65535}, "layers"),
        ({"layer1_kind": 8}, "layer1_kind"),
        ({"optimizer": 2}, "optimizer"),
        ({"init": 3}, "init"),
        ({"batch": 0}, "batch"),
        ({"batch": 65536}, "batch"),
        ({"local_steps": 0}, "local_steps"),
        ({"lr": NAN}, "lr"),
        ({"lr": -0.5}, "lr"),
        ({"momentum": INF}, "momentum"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"val_permille": 1000}, "val_permille"),
        ({"eval_every": 0}, "eval_every"),
        ({"lr_policy": 4}, "lr_policy"),
        ({"stair_count": 9}, "stair_count"),
        ({"lr_policy": 1, "stair_factor": 0.5}, "stair_factor"),
        ({"loss_count": 9}, "loss_count"),
        ({"lr_policy": 2, "loss_factor": 0.0}, "loss_factor"),
        ({"loss_reference": 3}, "loss_reference"),
        ({"policy": 8}, "policy"),
        ({"bits": 3}, "bits"),
        ({"bits": 64}, "bits"),
        ({"error_feedback": 2}, "error_feedback"),
        ({"policy": PolicyKind.TOPK, "error_feedback": 1}, "error_feedback"),
        ({"segments": 0}, "segments"),
        ({"sends": 0}, "sends"),
        ({"threshold": 0}, "threshold"),
        ({"threshold": 9, "fifo": 8}, "threshold"),
        ({"policy": PolicyKind.DPSGD, "fifo": 0}, "fifo"),
        ({"unit": 4}, "unit"),
        ({"score": 5}, "score"),
        ({"reduce": 2}, "reduce"),
        ({"base": 0.5}, "base"),
        ({"spread": 4}, "spread"),
        ({"success": 3}, "success"),
        ({"success_base": NAN}, "success_base"),
        ({"policy": PolicyKind.SEGMENTED_GOSSIP, "pulls": 0}, "pulls"),
        ({"policy": PolicyKind.GOSSIPFL, "ratio24": (1 << 24) + 1}, "ratio24"),
        ({"policy": PolicyKind.EPIDEMIC, "fanout": 0}, "fanout"),
        ({"policy": PolicyKind.TOPK, "top": 0}, "top"),
        ({"policy": PolicyKind.TOPK, "top": 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3 + 1}, "top"),
        ({"max_norm": NAN}, "max_norm"),
        ({"mtu": 63}, "mtu"),
        ({"mtu": 65536}, "mtu"),
        ({"reassembly": 0}, "reassembly"),
        ({"reassembly": 65}, "reassembly"),
        ({"auth": 2}, "auth"),
        ({"shard_max": 1}, "shard_max"),
        ({"shard_max": 65536}, "shard_max"),
        ({"peers_max": 65535}, "peers_max"),
        ({"feature_scale": INF}, "feature_scale"),
        ({"feature_offset": NAN}, "feature_offset"),
    ],
)
def test_a_word_out_of_range_is_named(changes: dict[str, float], word: str) -> None:
    image = bytearray(image_of(words()))
    for name, value in changes.items():
        kind = {"u": "<I", "f": "<f"}[CONFIG_WORDS[name]]
        struct.pack_into(kind, image, 16 + 4 * NAMES.index(name), value)
    assert load(reseal(bytes(image))) == ("CONFIG", word)


def test_of_two_bad_words_the_first_is_named() -> None:
    for first, second in (("lr", "mtu"), ("layers", "lr"), ("batch", "base"), ("max_norm", "reassembly")):
        image = bytearray(image_of(words()))
        for name in (first, second):
            struct.pack_into("<I", image, 16 + 4 * NAMES.index(name), 0xFFFFFFFF)  # too great, or NaN
        assert load(reseal(bytes(image))) == ("CONFIG", first)


def test_every_truncation_is_refused() -> None:
    image = image_of(words())
    for length in range(len(image)):
        assert load(image[:length])[0] in ("IMAGE_MAGIC", "IMAGE_LENGTH"), length
        assert load(image[:8] + struct.pack("<I", length) + image[12:length])[0] != "OK", length
    assert load(image + b"\0")[0] == "IMAGE_LENGTH"


def test_every_flipped_bit_is_refused() -> None:
    image = image_of(words())
    for bit in range(8 * len(image)):
        damaged = bytearray(image)
        damaged[bit // 8] ^= 1 << bit % 8
        expected = ("IMAGE_MAGIC", "SPEC_VERSION", "WIRE_VERSION", "IMAGE_LENGTH", "IMAGE_CRC")[
            sum(bit >= 8 * at for at in (4, 6, 8, 12))
        ]
        assert load(bytes(damaged)) == (expected, None), bit


def test_a_size_that_does_not_fit_is_refused() -> None:
    """Words that ask for other test samples than there are: the CRC is right, the length is not."""
    for word, value in (("test_count", 8), ("test_count", 1 << 24), ("input_channels", 7), ("feature_type", 1)):
        image = bytearray(image_of(words()))
        struct.pack_into("<I", image, 16 + 4 * NAMES.index(word), value)
        assert load(reseal(bytes(image)))[0] == "IMAGE_LENGTH"


def test_a_test_label_beyond_the_classes_is_refused() -> None:
    image = bytearray(image_of(words()))
    image[16 + 4 * len(NAMES) + 2] = 3
    assert load(reseal(bytes(image)))[0] != "OK"


def test_random_words_never_crash() -> None:
    draw = random.Random(1)
    good = image_of(words())
    seen = set()
    for _ in range(4000):
        image = bytearray(good)
        for _ in range(draw.choice([1, 1, 2, 5])):
            word = draw.randrange(len(NAMES))
            value = draw.choice([0, 1, 2, 255, 65535, 65536, 1 << 24, 1 << 31, 0xFFFFFFFF, draw.getrandbits(32)])
            struct.pack_into("<I", image, 16 + 4 * word, value)
        name, word_name = load(reseal(bytes(image)))
        assert (name == "CONFIG") == (word_name is not None)
        seen.add(name)
        if name == "OK":
            assert memory(reseal(bytes(image)))[0] > 0
    assert seen >= {"OK", "CONFIG", "IMAGE_LENGTH"}


def memory(image: bytes, *flags: str) -> tuple[int, int, int]:
    """Return the bytes of the arena, of the node, and of the arena's parts added up."""
    ffi, lib = library(*flags)
    sizes = ffi.new("size_t[3]")
    lib.probe_memory(image, len(image), sizes, sizes + 1, sizes + 2)
    return sizes[0], sizes[1], sizes[2]


def test_the_parts_add_up() -> None:
    for policy in PolicyKind:
        arena, _, parts = memory(image_of(words(policy=policy, error_feedback=policy != PolicyKind.TOPK, momentum=0.5)))
        assert arena == parts > 0


def test_the_digits_node_fits_64_kib() -> None:
    """The main job, as a processor without vectors runs it."""
    job = models.prepare(load_experiment(FIRMWARE.parent / "examples" / "digits_gist.toml"))
    arena, node, _ = memory(job.image, "-O1", "-U__SSE2__", "-U__AVX__", "-U__AVX512F__", "-U__ARM_NEON")
    assert 0 < arena + node <= 64 * 1024
