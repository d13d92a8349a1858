"""The node as a real process under address and undefined-behaviour sanitizers, and whatever may come over its line."""

from __future__ import annotations

import hashlib
import hmac
import random
import socket
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pytest

from gossamer import native
from gossamer.job import Job
from gossamer.spec.constants import COORDINATOR, METRIC_WORDS, MessageType
from gossamer.spec.image import shard_bytes
from gossamer.spec.messages import Hello, Metrics, Peers, Provision, Segment, Welcome
from gossamer.spec.wire import CobsStream, Frame, Reassembler, cobs_encode, pack_frame, parse_frame
from tests.link_fakes import KEY, small_job

if not native.available():
    pytest.skip("no C compiler", allow_module_level=True)

ID = 2
MTU = 1024
ANSWER_TIMEOUT_S = 60.0
DROPPED = [name for name in METRIC_WORDS if name.startswith("dropped_")]
ROUNDS = 2


@cache
def program() -> Path:
    sources = [*native.core_sources(), native.FIRMWARE / "port" / "host" / "main.c"]
    return native.executable("gossamer-node-checked", sources, sanitize=True)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return small_job(tmp_path)


class Node:
    """One process and its line; what the test sends, it sends as the coordinator or as a peer."""

    def __init__(self, job: Job, folder: Path, key: bytes = KEY, state: Path | None = None) -> None:
        image = folder / "image"
        image.write_bytes(job.image)
        self.job = job
        self.line, theirs = socket.socketpair()
        command = [str(program()), str(ID), str(image), str(theirs.fileno()), *([str(state)] if state else [])]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()]
            )
        self.line.settimeout(ANSWER_TIMEOUT_S)
        self.seq: dict[bool, int] = {False: 0, True: 0}
        self.whole = Reassembler(4)
        self.stream = CobsStream(MTU)
        self.frames: list[bytes] = []
        self.last = b""  # what `tell` sent last, as bytes of the stream
        self.last_type = 0
        self.send(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.line.close()
        if self.process.poll() is None and error is not None:
            self.process.kill()
        self.process.communicate()

    def send(self, data: bytes) -> None:
        self.line.sendall(data)

    def tell(self, type_: int, payload: bytes = b"", round_: int = 0, src: int = COORDINATOR) -> None:
        self.seq[type_ >= 16] += 1
        sent = Frame(type_, src, ID, round_, self.seq[type_ >= 16], payload)
        self.last, self.last_type = coded(pack_frame(sent, KEY)), type_
        self.send(self.last)

    def hear(self, type_: MessageType) -> bytes:
        """Return the next message of a type; all frames must be sound."""
        while True:
            while not self.frames:
                data = self.line.recv(1 << 16)
                assert data, f"the process ended: {self.end()}"
                self.frames = self.stream.feed(data)
            frame = parse_frame(self.frames.pop(0), KEY)
            assert frame.type != MessageType.ERROR, frame.payload
            message = self.whole.take(frame)
            if message is not None and frame.type == type_:
                return message

    def end(self) -> tuple[int, str]:
        """Close the line; return exit status and what the process said: a sanitizer's finding changes both."""
        self.line.close()
        said = self.process.communicate(timeout=ANSWER_TIMEOUT_S)[1].decode()
        return self.process.returncode, said


Dirt = Callable[[Node, int], bytes]  # the node and the round under way -> bytes of the stream


def nothing(node: Node, number: int) -> bytes:
    return b""


def run(node: Node, dirt: Dirt = nothing) -> list[Metrics]:
    """Take a node through two rounds with one message of a peer each; before each thing said comes dirt."""

    def soil(number: int) -> None:
        node.send(dirt(node, number))

    node.hear(MessageType.HELLO)
    node.tell(MessageType.WELCOME, Welcome(0).pack())
    x, y = node.job.shards[ID]
    shard = shard_bytes(ID, x, y, 0)
    held = 0
    while held < len(shard):
        soil(0)
        node.tell(MessageType.PROVISION, Provision(len(shard), held, shard[held : held + 900]).pack())
        held = int.from_bytes(node.hear(MessageType.ACK), "little")
    node.tell(MessageType.PEERS, Peers((0, 1, 3)).pack())
    reports = []
    for number in range(ROUNDS):
        soil(number)
        node.tell(MessageType.ROUND, round_=number)
        node.hear(MessageType.DONE)
        soil(number)
        values = np.random.default_rng(number).integers(-127, 128, 650).astype("i1").tobytes()
        node.tell(MessageType.SEGMENT, Segment(0, 8, 0, 3.0, 0.01, b"", values).pack(), number, src=1)
        soil(number)
        node.tell(MessageType.COMMIT, round_=number)
        reports.append(Metrics.parse(node.hear(MessageType.METRICS)))
    return reports


def clean(report: Metrics) -> dict[str, int | float]:
    return {name: value for name, value in report.words.items() if name not in DROPPED}


def frame(type_: int, src: int, round_: int, seq: int, flags: int = 1, dst: int = ID, payload: bytes = b"") -> bytes:
    """Lay out a frame by hand, after the table of SPEC.md 9."""
    covered = struct.pack("<BBBBHHIIHHH", 1, type_, flags, 0, src, dst, round_, seq, 0, 1, len(payload)) + payload
    return covered + hmac.new(KEY, covered, hashlib.sha256).digest()[:16]


def coded(data: bytes) -> bytes:
    return cobs_encode(data) + b"\0"


def flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


# Every one is dropped in every state of the node, and counted under this reason.
KINDS: dict[str, tuple[str, Dirt]] = {
    "too short for a header": ("length", lambda node, number: coded(b"\1\6")),
    "truncated": ("length", lambda node, number: coded(frame(9, COORDINATOR, number, 9999)[:-1])),
    "longer than it says": ("length", lambda node, number: coded(frame(9, COORDINATOR, number, 9999) + b"\0")),
    "another version": ("version", lambda node, number: coded(b"\2" + frame(9, COORDINATOR, number, 9999)[1:])),
    "another run's key": (
        "tag",
        lambda node, number: coded(pack_frame(Frame(9, COORDINATOR, ID, number, 9999), bytes(32))),
    ),
    "no tag": ("tag", lambda node, number: coded(pack_frame(Frame(9, COORDINATOR, ID, number, 9999), None))),
    "one bit flipped": ("tag", lambda node, number: coded(flip_last(frame(9, COORDINATOR, number, 9999)))),
    "a reserved bit": ("malformed", lambda node, number: coded(frame(9, COORDINATOR, number, 9999, flags=0x81))),
    "an unknown type": ("malformed", lambda node, number: coded(frame(13, COORDINATOR, number, 9999))),
    "payload where none is due": (
        "malformed",
        lambda node, number: coded(frame(9, COORDINATOR, number, 9999, payload=b"?")),
    ),
    "somebody else's": ("peer", lambda node, number: coded(frame(9, COORDINATOR, number, 9999, dst=ID + 1))),
    "control from a peer": ("peer", lambda node, number: coded(frame(12, 1, number, 9999))),
    "data from a stranger": ("peer", lambda node, number: coded(frame(16, 77, number, 9999))),
    "said before": ("replay", lambda node, number: node.last),
    "no COBS": ("garbage", lambda node, number: b"\x05ab\0"),
    "a boot log": ("garbage", lambda node, number: b"rst:0x1 (POWERON),boot:0x8 (SPI_FAST_FLASH_BOOT)\r\n\0"),
    "endless": ("garbage", lambda node, number: b"\x01" * 5000 + b"\0"),
    "longer than the MTU": ("garbage", lambda node, number: coded(bytes(MTU + 1))),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Metrics]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with Node(small_job(folder), folder) as node:
        reports = run(node)
        assert node.end() == (0, "")
    assert [report.words["messages_merged"] for report in reports] == [1, 1]
    assert all(report.words[name] == 0 for report in reports for name in DROPPED)
    assert reports[0].words["weights_crc"] != reports[1].words["weights_crc"]
    return reports


@pytest.mark.parametrize("kind", KINDS)
def test_bad_bytes_are_counted_and_change_nothing(
    kind: str, undisturbed: list[Metrics], job: Job, tmp_path: Path
) -> None:
    reason, dirt = KINDS[kind]
    sent = []

    def counted(node: Node, number: int) -> bytes:
        sent.append(number)
        return dirt(node, number)

    with Node(job, tmp_path) as node:
        reports = run(node, counted)
        assert node.end() == (0, "")
    for number, (report, reference) in enumerate(zip(reports, undisturbed, strict=True)):
        assert clean(report) == clean(reference)
        assert report.tensor_crcs == reference.tensor_crcs
        expected = dict.fromkeys(DROPPED, 0) | {f"dropped_{reason}": sent.count(number)}
        assert {name: report.words[name] for name in DROPPED} == expected


def test_data_of_another_round_or_repeated_is_dropped(undisturbed: list[Metrics], job: Job, tmp_path: Path) -> None:
    values = Segment(0, 8, 0, 3.0, 0.5, b"", bytes(650)).pack()
    with Node(job, tmp_path) as node:

        def dirt(node: Node, number: int) -> bytes:
            stale = coded(frame(16, 1, number + 1, 500, payload=values))
            return stale + (node.last if node.last_type == MessageType.SEGMENT else b"")

        reports = run(node, dirt)
        assert node.end() == (0, "")
    assert [clean(report) for report in reports] == [clean(report) for report in undisturbed]
    assert [report.words["dropped_replay"] for report in reports] == [1, 1]
    assert reports[1].words["dropped_stale"] == 3


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_mutations_never_hurt(seed: int, undisturbed: list[Metrics], job: Job, tmp_path: Path) -> None:
    draw = random.Random(seed)

    def dirt(node: Node, number: int) -> bytes:
        noise = b""
        for _ in range(100):
            kind = draw.randrange(3)
            if kind == 0:
                noise += draw.randbytes(draw.randrange(200))
            elif kind == 1:
                mutated = bytearray(frame(draw.randrange(20), COORDINATOR, number, draw.getrandbits(32)))
                mutated[draw.randrange(len(mutated))] ^= 1 << draw.randrange(8)
                noise += coded(bytes(mutated))
            else:
                piece = coded(frame(16, 1, number, draw.getrandbits(32), payload=draw.randbytes(60)))
                noise += piece[: draw.randrange(1, len(piece) - 1)] + b"\0"
        return noise + b"\0"

    with Node(job, tmp_path) as node:
        reports = run(node, dirt)
        assert node.end() == (0, "")
    assert [clean(report) for report in reports] == [clean(report) for report in undisturbed]
    assert all(sum(report.words[name] for name in DROPPED) > 100 for report in reports)


class SlowNode(Node):
    def send(self, data: bytes) -> None:
        for byte in data:
            super().send(bytes([byte]))


def test_bytes_may_come_one_by_one(undisturbed: list[Metrics], job: Job, tmp_path: Path) -> None:
    with SlowNode(job, tmp_path) as node:
        reports = run(node)
        assert node.end() == (0, "")
    assert [clean(report) for report in reports] == [clean(report) for report in undisturbed]


def test_a_message_that_does_not_fit_the_state_is_answered_by_error(job: Job, tmp_path: Path) -> None:
    with Node(job, tmp_path) as node:
        node.hear(MessageType.HELLO)
        node.tell(MessageType.ROUND)
        with pytest.raises(AssertionError, match="does not fit the node's state"):
            node.hear(MessageType.DONE)
        assert node.end() == (0, "")


def test_hello_is_said_until_it_is_heard(job: Job, tmp_path: Path) -> None:
    with Node(job, tmp_path) as node:
        assert Hello.parse(node.hear(MessageType.HELLO)) == Hello.parse(node.hear(MessageType.HELLO))
        assert node.end() == (0, "")


def test_a_boot_log_swallows_no_frame(job: Job, tmp_path: Path) -> None:
    """What comes without a delimiter of its own ahead of the first frame is a run of its own."""
    with Node(job, tmp_path) as node:
        first = node.line.recv(1 << 16)
        assert first.startswith(b"\0")
        stream = CobsStream(MTU)
        assert len(stream.feed(b"rst:0x1 (POWERON)" + first)) == 1 and stream.garbage == 1
        assert node.end() == (0, "")


def test_stop_ends_the_process(job: Job, tmp_path: Path) -> None:
    with Node(job, tmp_path) as node:
        node.hear(MessageType.HELLO)
        node.tell(MessageType.STOP)
        assert node.process.wait(ANSWER_TIMEOUT_S) == 0


def test_the_end_of_the_line_ends_the_process_while_it_works(tmp_path: Path) -> None:
    job = small_job(tmp_path, train={"local_steps": 60000, "batch": 64})
    with Node(job, tmp_path) as node:
        node.hear(MessageType.HELLO)
        node.tell(MessageType.WELCOME, Welcome(0).pack())
        x, y = job.shards[ID]
        shard = shard_bytes(ID, x, y, 0)
        for at in range(0, len(shard), 900):
            node.tell(MessageType.PROVISION, Provision(len(shard), at, shard[at : at + 900]).pack())
            node.hear(MessageType.ACK)
        node.tell(MessageType.ROUND)
        assert node.end() == (0, "")


# --- checkpoints -----------------------------------------------------------------------------------------------------


def hello_of(job: Job, folder: Path) -> Hello:
    with Node(job, folder, state=folder) as node:
        hello = Hello.parse(node.hear(MessageType.HELLO))
        assert node.end() == (0, "")
    return hello


@pytest.fixture
def slots(job: Job, tmp_path: Path) -> list[Path]:
    """Train for two rounds; return the files that are left."""
    with Node(job, tmp_path, state=tmp_path) as node:
        run(node)
        assert node.end() == (0, "")
    return sorted(tmp_path.glob("node-*"))


def test_checkpoints_are_two_whole_files(slots: list[Path], job: Job, tmp_path: Path) -> None:
    assert [path.name for path in slots] == ["node-00002.0", "node-00002.1"]
    hello = hello_of(job, tmp_path)
    assert (hello.newest_rounds, hello.older_rounds) == (2, 1)


@pytest.mark.parametrize(("slot", "left"), [(0, 2), (1, 1)])  # the rounds in the slot that stays whole
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", flip_last])
def test_a_damaged_checkpoint_is_not_offered(
    slot: int, left: int, damage: Callable[[bytes], bytes], slots: list[Path], job: Job, tmp_path: Path
) -> None:
    slots[slot].write_bytes(damage(slots[slot].read_bytes()))
    hello = hello_of(job, tmp_path)
    assert (hello.newest_rounds, hello.older_rounds) == (left, 0)


def test_a_checkpoint_half_written_leaves_the_others(slots: list[Path], job: Job, tmp_path: Path) -> None:
    (tmp_path / "node-00002.0.tmp").write_bytes(slots[0].read_bytes()[:100])
    hello = hello_of(job, tmp_path)
    assert (hello.newest_rounds, hello.older_rounds) == (2, 1)


def test_without_a_folder_nothing_is_kept(job: Job, tmp_path: Path) -> None:
    with Node(job, tmp_path) as node:
        run(node)
        assert node.end() == (0, "")
    assert not list(tmp_path.glob("node-*"))


def test_a_folder_that_is_not_there_costs_the_checkpoints_only(job: Job, tmp_path: Path) -> None:
    with Node(job, tmp_path, state=tmp_path / "none") as node:
        run(node)
        status, said = node.end()
    assert status == 0
    assert said.count("checkpoint not written") == ROUNDS


# --- how it is started -----------------------------------------------------------------------------------------------


def refused(*arguments: str | Path) -> str:
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr


def test_bad_arguments_are_refused_by_name(job: Job, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(job.image)
    assert "usage" in refused()
    assert "usage" in refused("1", image)
    assert 'ID: "4" is no number from 0 to 3' in refused("4", image, "0")
    assert 'ID: "one"' in refused("one", image, "0")
    assert 'FD: "-1"' in refused("1", image, "-1")
    assert "Bad file descriptor" in refused("1", image, "999")
    assert "No such file" in refused("1", tmp_path / "none", "0")
    (tmp_path / "empty").touch()
    assert "empty" in refused("1", tmp_path / "empty", "0")


def test_a_damaged_image_is_refused_by_name(job: Job, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(job.image[:-1])
    assert "truncated" in refused("1", image, "0")
    image.write_bytes(job.image[:-1] + bytes([job.image[-1] ^ 1]))
    assert "damaged (CRC)" in refused("1", image, "0")


def test_half_a_key_is_refused(job: Job, tmp_path: Path) -> None:
    with Node(job, tmp_path, key=KEY[:31]) as node:
        status, said = node.end()
    assert status == 1
    assert "run key" in said


def test_the_arena_is_printed_part_by_part(job: Job, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(job.image)
    printed = subprocess.run(
        [program(), "--print-arena", image], capture_output=True, text=True, timeout=60, check=True
    )
    parts = {name: int(size) for size, name in (line.split(" ", 1) for line in printed.stdout.splitlines())}
    total = parts.pop("total")
    assert parts["weights"] == 650 * 4
    assert total - parts.pop("node") == sum((size + 7) // 8 * 8 for size in parts.values())
    assert hello_of(job, tmp_path).arena_bytes == sum((size + 7) // 8 * 8 for size in parts.values())
