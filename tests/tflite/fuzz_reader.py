"""Look for files on which the reader, or what follows it, fails otherwise than by a ModelError.

usage: python -m tests.tflite.fuzz_reader [--compile] [--plain] [SECONDS]

With atheris (`pip install atheris`) mutations follow the code they reach; without it, or with --plain, they are blind.
--compile goes on to inferring shapes, folding and lowering. What fails is left in the current folder as crash-*.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

CORPUS = Path(__file__).parent / "corpus"
LEN_BYTES_MOST = 4096
# Numbers on the edges of the types that offsets, lengths, shapes and scales have.
_NUMBERS = [0, 1, 2, 4, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 0x7F800000, 0x7FC00000]


def read(data: bytes) -> None:
    """Read, and let every ModelError pass."""
    from codegen.ir import ModelError
    from codegen.read import parse_model

    try:
        parse_model(data, "fuzz.tflite")
    except ModelError as error:
        assert "\n" not in str(error)


def compile_too(data: bytes) -> None:
    """Read and compile, and let every ModelError pass."""
    from codegen.ir import ModelError
    from codegen.program import compile_graph
    from codegen.read import parse_model

    try:
        compile_graph(parse_model(data, "fuzz.tflite"))
    except ModelError as error:
        assert "\n" not in str(error)


@functools.cache
def seeds(target: Callable[[bytes], None]) -> list[bytes]:
    """Return the files to start from; what compiles needs more operators than the reader does."""
    from codegen.lower import supported
    from codegen.write import write
    from tests.tflite.random_graphs import random_graph

    files = [path.read_bytes() for path in sorted(CORPUS.glob("*.tflite"))]
    count = 60 if target is compile_too else 0
    return files + [write(random_graph(seed, supported())) for seed in range(count)]


def mutations(files: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Yield damaged files without end: a few changes each, of bits, numbers, lengths and whole pieces."""
    draw = np.random.default_rng(seed)
    while True:
        data = bytearray(files[draw.integers(len(files))])
        for _ in range(draw.integers(1, 5)):
            _mutate(data, draw)
        yield bytes(data)


def _mutate(data: bytearray, draw: np.random.Generator) -> None:
    place = int(draw.integers(max(len(data) - 8, 1)))
    change = draw.integers(5)
    if change == 0:
        data[place] ^= 1 << int(draw.integers(8))
    elif change == 1:
        struct.pack_into("<I", data, place // 4 * 4, _NUMBERS[draw.integers(len(_NUMBERS))])
    elif change == 2:
        (old,) = struct.unpack_from("<I", data, place // 4 * 4)
        struct.pack_into("<I", data, place // 4 * 4, (old + int(draw.integers(-16, 17))) % 2**32)
    elif change == 3:
        length = int(draw.integers(1, 64))
        source = int(draw.integers(len(data)))
        data[place : place + length] = data[source : source + length]
    elif draw.integers(8) == 0:
        del data[place + 8 :]


def run_plain(target: Callable[[bytes], None], seed: int, count: int | None = None, seconds: float = 60) -> int:
    """Try mutations until the count or the time is used up; return how many."""
    end_s = time.monotonic() + seconds
    tried = 0
    for data in mutations(seeds(target), seed):
        if tried == count or (count is None and time.monotonic() > end_s):
            return tried
        try:
            target(data)
        except BaseException:
            path = Path(f"crash-{hashlib.sha256(data).hexdigest()[:16]}")
            path.write_bytes(data)
            print(f"the file is {path}", file=sys.stderr)
            raise
        tried += 1
    raise AssertionError("mutations end")


def run_atheris(target: Callable[[bytes], None], seconds: float) -> None:
    """Let atheris guide the mutations; it ends the process."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["codegen", "tflite", "flatbuffers"]):
        start = seeds(target)
        target(start[0])
    with tempfile.TemporaryDirectory() as found:  # so that the corpus of the project stays small
        for number, data in enumerate(start):
            (Path(found) / str(number)).write_bytes(data)
        options = [f"-max_total_time={int(seconds)}", f"-max_len={LEN_BYTES_MOST}", "-timeout=2", "-rss_limit_mb=1024"]
        atheris.Setup([sys.argv[0], *options, found], target)
        atheris.Fuzz()


def main(arguments: list[str]) -> None:
    """Fuzz for the seconds given."""
    seconds = next((float(argument) for argument in arguments if not argument.startswith("-")), 60)
    target = compile_too if "--compile" in arguments else read
    if "--plain" in arguments or importlib.util.find_spec("atheris") is None:
        print(f"{run_plain(target, time.time_ns(), seconds=seconds)} files, nothing found")
    else:
        run_atheris(target, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
