"""Nodes on emulated boards: the bits of the simulation, failures named, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import twin_emu.process
from gossamer.cli import main
from gossamer.errors import CoreError, RunError
from gossamer.job import Job
from gossamer.link import Patience, line_place
from gossamer.place import Row
from gossamer.toolchain import Image
from tests.conformance.test_equal import combination, first_difference, prepare, run
from tests.link_fakes import small_job
from twin_emu import EmuPlace

pytestmark = pytest.mark.usefixtures("chain")


def short(policy: str, bits: int, **sections: object) -> dict[str, object]:
    tables = combination(policy, bits, "adaloss")
    tables["experiment"] |= {"nodes": 4, "rounds": 3}
    tables["topology"] = {"kind": "full"}
    return tables | sections


def pids(place: EmuPlace) -> list[int]:
    return [line.body.pid for line in place.lines]


def state(pid: int) -> str:
    """Return the letter of a process's state; Z also if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def runs(pid: int) -> bool:
    return state(pid) != "Z"


@contextmanager
def started(job: Job, folder: Path) -> Iterator[EmuPlace]:
    """Start a place; afterwards none of its processes may be left."""
    left: list[int] = []
    try:
        with EmuPlace(job, folder) as place:
            place.start(0)
            left = pids(place)
            yield place
            left = pids(place)
    finally:
        assert len(left) == len(job.shards)
        assert not any(map(runs, left))


def all_rounds(place: EmuPlace, first: int, end: int) -> list[list[Row]]:
    return [place.round(number) for number in range(first, end)]


@pytest.mark.parametrize(("policy", "bits"), [("gist", 8), ("segmented_gossip", 4)])
def test_equal_to_the_simulation(policy: str, bits: int, tmp_path: Path) -> None:
    job = prepare(short(policy, bits), tmp_path)
    expected = run(job, "numpy", tmp_path)
    with started(job, tmp_path) as place:
        assert first_difference(expected, all_rounds(place, 0, 3)) is None
        facts = place.facts
    assert 10_000 < facts["firmware_bytes"] < 1 << 20 and 5 < facts["node_mib"] < 100
    used = re.fullmatch(r"stack: (\d+) of 8192 bytes used", (tmp_path / "nodes/node-00003.log").read_text().strip())
    assert used and 500 < int(used[1]) < 6000


def test_a_convolutional_model_is_equal_too_in_a_folder_of_any_name(tmp_path: Path) -> None:
    layers = [
        {"kind": "conv", "filters": 4, "kernel": 3, "padding": "same", "activation": "relu"},
        {"kind": "max_pool", "size": 2},
        {"kind": "dropout", "rate": 0.2},
        {"kind": "dense", "width": 10},
    ]
    model = {"input": [8, 8, 1], "layers": layers}
    job = small_job(tmp_path, nodes=2, rounds=2, model=model, train={"optimizer": "adam", "lr": 0.01})
    folder = tmp_path / "a, b=c 'd'"
    folder.mkdir()
    expected = run(job, "numpy", tmp_path)
    with started(job, folder) as place:
        assert first_difference(expected, all_rounds(place, 0, 2)) is None


def test_the_build_command_tells_the_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_job(tmp_path)
    assert main(["build", str(tmp_path / "small.toml"), "--measure", "--out", str(tmp_path / "built")]) == 0
    *lines, elf = capsys.readouterr().out.splitlines()
    table = {
        line[:20].strip(): [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", line[20:])]
        for line in lines
    }
    assert table["text"][1:] == [64 << 10] and table["data memory in all"][1:] == [192 << 10]
    assert table["stack"][0] == 8192 and 500 < table["stack"][1] < 6000
    in_ram = sum(table[name][0] for name in ("data", "bss", "stack", "line", "arena"))
    assert in_ram == table["data memory in all"][0] < 192 << 10
    assert table["arena"][0] > 3 * 4 * 650  # weights, those at the start, and a gradient
    assert Path(elf).read_bytes()[:4] == b"\x7fELF"


def test_an_interrupted_run_continues_from_what_was_saved(tmp_path: Path) -> None:
    job = prepare(short("topk", 8, link={"loss": 0.1}), tmp_path)
    expected = run(job, "numpy", tmp_path)
    with started(job, tmp_path) as place:
        all_rounds(place, 0, 1)
        place.save()
        all_rounds(place, 1, 2)
        place.save()
        all_rounds(place, 2, 3)  # never saved
    with EmuPlace(job, tmp_path) as place:
        assert place.start(3) == 2
        assert first_difference(expected[2:], all_rounds(place, 2, 3)) is None
    with EmuPlace(job, tmp_path) as place:
        assert place.start(0) == 0
        assert first_difference(expected[:1], all_rounds(place, 0, 1)) is None


def test_a_node_without_power_for_a_moment_changes_nothing(tmp_path: Path) -> None:
    job = prepare(short("gist", 8), tmp_path)
    expected = run(job, "numpy", tmp_path)
    rows = []
    with started(job, tmp_path) as place:
        before = pids(place)
        for number in range(3):
            rows.append(place.round(number))
            place.restart(number)
        assert not any(map(runs, before[:3])) and runs(before[3])
    assert first_difference(expected, rows) is None


STRICT = {"emu": {"on_loss": "stop"}}


def test_a_killed_node_is_named_with_its_end(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught, started(small_job(tmp_path, **STRICT), tmp_path) as place:
        place.round(0)
        os.kill(pids(place)[2], signal.SIGKILL)
        place.round(1)
    assert caught.value.where == "node 2"
    assert "SIGKILL" in caught.value.what


def test_garbage_on_the_line_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    expected = run(job, "numpy", tmp_path)
    with started(job, tmp_path) as place:
        line = place.lines[1]
        rows = []
        for number in range(3):
            line.unsent += b"ets Jul 29 2019\r\nrst:0x1 (POWERON)\xc1\xc1\0\x05ab\0" + b"\x01" * 5000
            rows.append(place.round(number))
    assert [row[1]["dropped_garbage"] for row in rows] == [3, 3, 3]
    for row in rows:
        row[1]["dropped_garbage"] = 0
    assert first_difference(expected, rows) is None


def test_what_a_node_says_besides_frames_is_in_its_log(tmp_path: Path) -> None:
    with started(small_job(tmp_path), tmp_path) as place:
        line = place.lines[1]
        assert line.stream.feed(b"rst:0x1 (POWERON)\r\n\0") == []
        place.round(0)
    assert (tmp_path / "nodes/node-00001.log").read_text().startswith("rst:0x1 (POWERON)\nstack: ")


def test_a_flood_fills_no_disk(tmp_path: Path) -> None:
    with started(small_job(tmp_path), tmp_path) as place:
        line = place.lines[1]
        for _ in range(40):
            line.stream.feed(b"\x05what is this" * 5000 + b"\0")
        place.round(0)
    log = tmp_path / "nodes/node-00001.log"
    assert log.stat().st_size < 1_200_000
    assert log.read_text("utf-8").splitlines()[-1] == "(more such is not kept)"


def test_a_silent_node_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_place, "STOP_TIMEOUT_S", 0.3)
    with pytest.raises(RunError, match="no DONE within 1 s; 1 of 4 nodes are silent") as caught:
        with EmuPlace(small_job(tmp_path, **STRICT), tmp_path, Patience(timeout_s=1.0)) as place:
            place.start(0)
            os.kill(pids(place)[3], signal.SIGSTOP)
            place.round(0)
    assert caught.value.where == "node 3, round 0"


# --- faults ----------------------------------------------------------------------------------------------------------


def test_faults_happen_to_the_nodes_and_change_what_they_change_in_the_simulation(tmp_path: Path) -> None:
    events = [
        {"at": "round 1", "do": "kill", "nodes": [0]},
        {"at": "round 1", "do": "pause", "nodes": [1]},
        {"at": "round 2", "do": "partition", "nodes": [3]},
        {"at": "round 3", "do": "restart", "nodes": [0, 2]},
        {"at": "round 3", "do": "resume", "nodes": [1]},
        {"at": "round 3", "do": "corrupt_link", "nodes": [2], "rate": 0.5},
    ]
    head = {"name": "faults", "seed": 3, "nodes": 4, "rounds": 4}
    tables = short("gist", 8, faults={"event": events}, link={"duplication": 0.2}, experiment=head)
    job = prepare(tables, tmp_path)
    expected = run(job, "numpy", tmp_path)
    told: list[tuple[str, object]] = []
    with EmuPlace(job, tmp_path, tell=lambda kind, **more: told.append((kind, more.get("do")))) as place:
        place.start(0)
        before = pids(place)
        rows = all_rounds(place, 0, 1)
        rows += [place.round(1)]
        assert len(place.lines) == 3 and state(before[1]) == "T" and not runs(before[0])
        rows += [place.round(2)]
        place.save()  # the flash of nodes without power, too
        rows += [place.round(3)]
        after = pids(place)
        assert after[1] == before[1] and after[3] == before[3] and state(before[1]) != "T"
        assert after[0] != before[0] and after[2] != before[2]
    assert not any(map(runs, before + after))
    assert first_difference(expected, rows) is None
    assert sum(row["dropped_tag"] for row in rows[3]) > 0 < sum(row["dropped_replay"] for row in rows[0])
    assert told == [("fault", event["do"]) for event in events]
    with EmuPlace(job, tmp_path) as place:  # continued while node 0 is away
        assert place.start(3) == 3
        assert len(place.lines) == 3
        assert first_difference(expected[3:], [place.round(3)]) is None


def test_the_others_go_on_without_a_killed_and_a_silent_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_emu.process, "LAST_WORDS_S", 0.3)
    told: list[tuple[str, object]] = []
    job = small_job(tmp_path, emu={"patience_s": 5.0})
    with EmuPlace(job, tmp_path, tell=lambda kind, **more: told.append((kind, more["nodes"]))) as place:
        place.start(0)
        place.round(0)
        left = pids(place)
        os.kill(left[2], signal.SIGKILL)
        os.kill(left[0], signal.SIGSTOP)
        rows = place.round(1)
        assert [row["present"] for row in rows] == [False, True, False, True]
        assert sorted(told) == [("lost", [0]), ("lost", [2])]
        assert place.lost == [0, 2] == place.facts["lost"]
        place.save()
        assert all(row["present"] for row in place.round(2)[1::2])
    assert not any(map(runs, left))
    with EmuPlace(job, tmp_path) as place:
        assert place.start(2) == 2
        assert [row["present"] for row in place.round(2)] == [False, True, False, True]


def with_zeros(image: Image, symbol: str, folder: Path) -> Image:
    """Return a program in whose code stand zeros, which are no instruction, where a function begins."""
    data = bytearray(image.elf.read_bytes())
    address = image.symbols[symbol][0]
    headers, count = struct.unpack_from("<I", data, 28)[0], struct.unpack_from("<H", data, 44)[0]
    for at in range(headers, headers + 32 * count, 32):
        offset, begin, _, len_bytes = struct.unpack_from("<4I", data, at + 4)
        if begin <= address < begin + len_bytes:
            data[offset + address - begin : offset + address - begin + 4] = bytes(4)
    (folder / "broken.elf").write_bytes(data)
    return replace(image, elf=folder / "broken.elf")


def test_a_fault_is_told_with_its_place(tmp_path: Path) -> None:
    place = EmuPlace(small_job(tmp_path, **STRICT), tmp_path)
    sound = place._firmware
    place._firmware = with_zeros(sound, "gs_merge_commit", tmp_path)
    with pytest.raises(CoreError) as caught, place:
        place.start(0)
        place.round(0)
    assert caught.value.name == "FAULT" and re.fullmatch(r"node \d, round 0", str(caught.value.where))
    pc = re.search(r"cause 0, pc ([0-9a-f]{8}), address", caught.value.what)
    assert pc and int(pc[1], 16) == sound.symbols["gs_merge_commit"][0]
    assert ", a15 " in caught.value.what


def test_an_experiment_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    job = small_job(tmp_path, model={"layers": [64, 300, 10]}, **STRICT)
    with pytest.raises(CoreError, match=r"ARENA \(-1\): .*: bytes missing: \d+") as caught:
        with EmuPlace(job, tmp_path) as place:
            place.start(0)
    assert str(caught.value.where).startswith("node ")


def test_the_run_key_is_in_no_argument_no_variable_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = b"0123456789abcdefghijklmnopqrstuv"
    monkeypatch.setattr("secrets.token_bytes", lambda size: key[:size])
    with started(small_job(tmp_path), tmp_path) as place:
        for pid in pids(place):
            for name in ("cmdline", "environ"):
                assert key not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert not any(key in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_nodes_end_with_us_however_that_is(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, pathlib\n"
        "from tests.link_fakes import small_job\nfrom twin_emu import EmuPlace\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with EmuPlace(small_job(folder), folder) as place:\n"
        "    place.start(0)\n"
        "    print(*(line.body.pid for line in place.lines), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=root, capture_output=True, text=True)
    left = list(map(int, done.stdout.split()))
    assert len(left) == 4, done.stderr
    for _ in range(100):
        if not any(map(runs, left)):
            return
        time.sleep(0.05)
    pytest.fail(f"of {left} some run on")
