"""SHA-256, HMAC and CRC-32 against published vectors and Python's own."""

from __future__ import annotations

import hashlib
import hmac
import zlib

import pytest

from tests.core.parts import Parts

# FIPS 180-4 examples (NIST, "SHA-256 example values") and the empty message.
SHA256 = {
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}

# RFC 4231, test cases 1 to 7: key, data, HMAC-SHA-256 (case 5: its first 16 bytes).
HMAC_SHA256 = [
    (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
    (
        b"Jefe",
        b"what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
    (bytes(range(1, 26)), b"\xcd" * 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
    (b"\x0c" * 20, b"Test With Truncation", "a3b6167473100ee06e0c796c2955552b"),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
        b"hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    ),
]


def sha256(parts: Parts, *pieces: bytes) -> str:
    state, out = parts.ffi.new("gs_sha256_t *"), parts.room(32)
    parts.lib.gs_sha256_init(state)
    for piece in pieces:
        parts.lib.gs_sha256_update(state, parts.give(piece), len(piece))
    parts.lib.gs_sha256_final(state, out)
    return parts.take(out).tobytes().hex()


def tag(parts: Parts, secret: bytes, data: bytes) -> str:
    key, out = parts.ffi.new("gs_hmac_key_t *"), parts.room(32)
    parts.lib.gs_hmac_init(key, parts.give(secret), len(secret))
    for _ in range(2):  # a key serves any number of messages
        parts.lib.gs_hmac(key, parts.give(data), len(data), out)
    return parts.take(out).tobytes().hex()


@pytest.mark.parametrize("data", SHA256, ids=len)
def test_sha256_gives_the_published_digests(parts: Parts, data: bytes) -> None:
    assert sha256(parts, data) == SHA256[data]


def test_sha256_of_every_length_and_cut(parts: Parts) -> None:
    data = bytes(i * 7 & 255 for i in range(200))
    for length in range(len(data)):
        expected = hashlib.sha256(data[:length]).hexdigest()
        assert sha256(parts, data[:length]) == expected
        cut = length * 2 // 3
        assert sha256(parts, data[:cut], b"", data[cut:length]) == expected


@pytest.mark.parametrize(("secret", "data", "expected"), HMAC_SHA256, ids=range(1, 8))
def test_hmac_gives_the_published_tags(parts: Parts, secret: bytes, data: bytes, expected: str) -> None:
    assert tag(parts, secret, data)[: len(expected)] == expected


@pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 200])
def test_hmac_takes_keys_of_any_length(parts: Parts, length: int) -> None:
    secret = bytes(range(length))
    assert tag(parts, secret, b"frame") == hmac.new(secret, b"frame", "sha256").hexdigest()


def test_crc32(parts: Parts) -> None:
    crc = parts.lib.gs_crc32
    assert crc(0, b"123456789", 9) == 0xCBF43926  # the check value of every catalogue of CRCs
    assert crc(0, b"", 0) == 0
    data = bytes(range(256))
    for cut in range(257):
        assert crc(crc(0, data[:cut], cut), data[cut:], 256 - cut) == zlib.crc32(data)
