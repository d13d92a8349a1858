"""Payloads against bytes written by hand from the tables of SPEC.md 10."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.spec.constants import METRIC_WORDS
from gossamer.spec.errors import MalformedError
from gossamer.spec.messages import Ack, Done, Failure, Hello, Metrics, Peers, Provision, Pull, Segment, Welcome

U32 = st.integers(0, 2**32 - 1)
F32 = st.floats(width=32, allow_nan=False)
ASCENDING = st.sets(st.integers(0, 65535), min_size=1, max_size=30).map(lambda numbers: tuple(sorted(numbers)))

BY_HAND = [
    (Hello(1, 2, 0xDDCCBBAA, 7, 6, 65536), "0100 0200 aabbccdd 07000000 06000000 00000100"),
    (Welcome(258), "02010000"),
    (Provision(10, 4, b"\x01\x02\x03"), "0a000000 04000000 010203"),
    (Provision(0, 0, b""), "00000000 00000000"),
    (Ack(7), "07000000"),
    (Peers(()), "0000"),
    (Peers((3, 258, 65534)), "0300 0300 0201 feff"),
    (Done(1), "01000000"),
    (Failure(-9, "Zustand ü"), "f7ffffff 5a757374616e6420c3bc"),
    (Pull((0, 5)), "0200 0000 0500"),
    (Segment(2, 8, 3, 1.0, -0.5, b"\x01", b"\xfe\x02"), "02 08 0300 0000803f 000000bf 01000000 01 fe02"),
    (Segment(0, 32, 0, 0.0, 0.0, b"", b""), "00 20 0000 00000000 00000000 00000000"),
]

MESSAGES = st.one_of(
    st.builds(Hello, *[st.integers(0, 65535)] * 2, *[U32] * 4),
    st.builds(Welcome, U32),
    st.builds(Done, U32),
    st.builds(Peers, ASCENDING),
    st.builds(Pull, ASCENDING),
    st.builds(Failure, st.integers(-(2**31), 2**31 - 1), st.text(st.characters(exclude_categories=["Cs"]))),
    st.builds(
        Segment, *[st.integers(0, 255)] * 2, st.integers(0, 65535), F32, F32, *[st.binary(max_size=20)] * 2
    ),
)  # fmt: skip
KINDS = (Hello, Welcome, Provision, Ack, Peers, Done, Failure, Pull, Segment, Metrics)


@pytest.mark.parametrize(("message", "payload"), BY_HAND)
def test_by_hand(message: Any, payload: str) -> None:
    assert message.pack() == bytes.fromhex(payload)
    assert type(message).parse(bytes.fromhex(payload)) == message


@given(MESSAGES)
def test_round_trip(message: Any) -> None:
    assert type(message).parse(message.pack()) == message


@given(st.sampled_from(KINDS), st.binary(max_size=150))
def test_parse_survives_garbage(kind: Any, payload: bytes) -> None:
    try:
        message = kind.parse(payload)
    except MalformedError:
        return
    if kind is not Failure:  # whose text is shown, however broken
        again = message.pack()
        assert len(again) == len(payload)


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (Hello, "00" * 19, "Hello: 19 bytes instead of 20"),
        (Welcome, "0000000000", "Welcome: 5 bytes instead of 4"),
        (Ack, "", "Ack: 0 bytes instead of 4"),
        (Done, "000000", "Done: 3 bytes instead of 4"),
        (Provision, "0a0000000400", "Provision: 6 bytes instead of 8"),
        (Provision, "0600000004000000010203", "Provision: 3 bytes at 4 of 6"),
        (Peers, "", "Peers: 0 bytes instead of 2"),
        (Peers, "02000100", "Peers: 4 bytes instead of 6"),
        (Peers, "0100010000", "Peers: 5 bytes instead of 4"),
        (Peers, "020002000100", "not ascending"),
        (Peers, "020002000200", "not ascending"),
        (Pull, "0000", "no segment"),
        (Pull, "020005000000", "not ascending"),
        (Segment, "00" * 15, "its header has 16"),
        (Segment, "00" * 12 + "02000000" + "00", "an index of 2 bytes"),
        (Segment, "00" * 12 + "ffffffff" + "00", "an index of 4294967295 bytes"),
        (Failure, "000000", "Failure: 3 bytes"),
        (Metrics, "00" * 107, "Metrics: 107 bytes"),
        (Metrics, "00" * 112, "Metrics: 112 bytes"),
    ],
)
def test_malformed(kind: Any, payload: str, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        kind.parse(bytes.fromhex(payload))


def test_the_text_of_an_error_is_shown_however_broken() -> None:
    assert Failure.parse(b"\x01\x00\x00\x00ab\xff").text == "ab\ufffd"


def test_metrics_words_have_their_places() -> None:
    # SPEC.md 10.3: 27 words in this order, then the CRCs of W and b, layer by layer.
    words = {name: float(i) + 0.5 if kind == "f" else i for i, (name, kind) in enumerate(METRIC_WORDS.items())}
    payload = Metrics(words, (0xAABBCCDD, 1, 2, 3)).pack()
    assert len(payload) == 4 * 27 + 16
    assert struct.unpack_from("<II", payload) == (0, 1)  # round, weights_crc
    assert struct.unpack_from("<ff", payload, 8) == (2.5, 3.5)  # train_loss, val_loss
    assert struct.unpack_from("<f", payload, 4 * 9) == (9.5,)  # lr
    assert struct.unpack_from("<IIII", payload, 4 * 10) == (10, 11, 12, 13)  # frames, bytes: sent, received
    assert struct.unpack_from("<I", payload, 4 * 26) == (26,)  # diverged
    assert payload[108:112] == b"\xdd\xcc\xbb\xaa"
    parsed = Metrics.parse(payload)
    assert parsed.words == words and list(parsed.words) == list(METRIC_WORDS)
    assert parsed.tensor_crcs == (0xAABBCCDD, 1, 2, 3)


def test_metrics_keep_a_nan_loss() -> None:
    words = dict.fromkeys(METRIC_WORDS, 0) | {"train_loss": math.nan}
    assert math.isnan(Metrics.parse(Metrics(words, ()).pack()).words["train_loss"])
