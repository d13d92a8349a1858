"""What the native engine and the host place promise besides equal bits: nothing left behind, failures named."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import twin_sim
from gossamer import native
from gossamer.errors import GossamerError, RunError
from gossamer.link import line_place
from tests.conformance.test_equal import combination, first_difference, prepare, run
from tests.link_fakes import small_job
from twin_sim.host import HostPlace
from twin_sim.native import NativePlace

if not native.available():
    pytest.skip("no C compiler", allow_module_level=True)


def pids(place: HostPlace) -> list[int]:
    return [line.body.pid for line in place.lines]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# --- one process a node ----------------------------------------------------------------------------------------------


def test_no_process_stays(tmp_path: Path) -> None:
    with HostPlace(small_job(tmp_path), tmp_path) as place:
        place.start(0)
        started = pids(place)
        assert len(started) == 4 and all(map(runs, started))
        place.round(0)
    assert not any(map(runs, started))


def test_no_process_stays_after_an_error_of_ours(tmp_path: Path) -> None:
    started: list[int] = []
    with pytest.raises(KeyboardInterrupt), HostPlace(small_job(tmp_path), tmp_path) as place:
        place.start(0)
        started = pids(place)
        raise KeyboardInterrupt
    assert len(started) == 4
    assert not any(map(runs, started))


def test_a_process_that_hangs_is_ended_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_place, "STOP_TIMEOUT_S", 0.3)
    with HostPlace(small_job(tmp_path), tmp_path) as place:
        place.start(0)
        started = pids(place)
        for pid in started:
            os.kill(pid, signal.SIGSTOP)
        stopping_s = time.monotonic()
    assert time.monotonic() - stopping_s < 2.0  # one deadline for all, not one each
    assert not any(map(runs, started))


def test_a_dead_process_is_named_with_its_end(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught, HostPlace(small_job(tmp_path), tmp_path) as place:
        place.start(0)
        place.round(0)
        os.kill(pids(place)[2], signal.SIGKILL)
        place.round(1)
    assert caught.value.where == "node 2"
    assert "SIGKILL" in caught.value.what
    assert "node-00002.log" in str(caught.value.mend)


def test_a_process_that_refuses_to_start_is_quoted(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    damaged = type(job)(**{**vars(job), "image": job.image[:-1] + b"\x77"})
    log = tmp_path / "nodes" / "node-00000.log"
    log.parent.mkdir()
    log.write_text("words of an older process\n")
    with pytest.raises(RunError, match="ended with status 1; it said: .*damaged") as caught:
        with HostPlace(damaged, tmp_path) as place:
            place.start(0)
    assert "older" not in caught.value.what
    assert log.read_text().startswith("words of an older process\n")


def test_the_run_key_is_in_no_argument_and_no_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = b"0123456789abcdefghijklmnopqrstuv"
    monkeypatch.setattr("secrets.token_bytes", lambda size: key[:size])
    with HostPlace(small_job(tmp_path), tmp_path) as place:
        place.start(0)
        for pid in pids(place):
            for name in ("cmdline", "environ"):
                assert key not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert not any(key in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_nodes_inherit_nothing_but_their_own_line(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, HostPlace(small_job(tmp_path), tmp_path) as place:
        place.start(0)
        for pid in pids(place):
            files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            assert sum(name.startswith("socket:") for name in files) == 1


def test_a_record_without_its_crcs_is_refused_with_the_mend(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    with HostPlace(job, tmp_path) as place:
        place.start(0)
        place.round(0)
    (tmp_path / "state" / "coordinator.json").unlink()
    with pytest.raises(RunError, match="nothing is kept of round 1; delete"), HostPlace(job, tmp_path) as place:
        place.start(1)


def test_a_process_that_starts_again_changes_nothing(tmp_path: Path) -> None:
    job = prepare(combination("gist", 8, "adaloss"), tmp_path)
    whole = run(job, "native", tmp_path)
    rows = []
    with HostPlace(job, tmp_path) as place:
        place.start(0)
        for number in range(5):
            rows.append(place.round(number))
            place.restart(number)
    assert first_difference(whole, rows) is None


def test_a_process_that_starts_again_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    with pytest.raises(RunError, match="without its checkpoint of 2 rounds; it has: 1;") as caught:
        with HostPlace(job, tmp_path) as place:
            place.start(0)
            place.round(0)
            place.round(1)
            newest = max((tmp_path / "state").glob("node-00001.?"), key=lambda path: path.stat().st_mtime_ns)
            newest.unlink()
            place.restart(1)
    assert caught.value.where == "node 1, round 2"


def test_host_goes_back_to_what_all_nodes_hold(tmp_path: Path) -> None:
    job = prepare(combination("gist", 8, "adaloss"), tmp_path)
    whole = run(job, "native", tmp_path)
    with HostPlace(job, tmp_path) as place:
        place.start(0)
        for number in range(3):
            place.round(number)
    newest = max((tmp_path / "state").glob("node-00004.?"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()  # as if the machine had stopped before node 4 wrote round 2
    with HostPlace(job, tmp_path) as place:
        assert place.start(3) == 2
        assert first_difference(whole[2:], [place.round(number) for number in range(2, 5)]) is None


# --- inside this process ---------------------------------------------------------------------------------------------


def test_threads_change_nothing(tmp_path: Path) -> None:
    job = prepare(combination("segmented_gossip", 4, "adastair"), tmp_path)
    rows, weights = [], []
    for threads in (1, 3, 16):
        with NativePlace(job, tmp_path / str(threads), threads) as place:
            place.start(0)
            rows.append([place.round(number) for number in range(3)])
            weights.append(place.weights())
    assert first_difference(rows[0], rows[1]) is None
    assert first_difference(rows[0], rows[2]) is None
    assert np.array_equal(weights[0], weights[2])


def test_native_continues_from_what_was_saved_not_from_what_ran(tmp_path: Path) -> None:
    job = prepare(combination("dpsgd", 8, "constant"), tmp_path)
    with NativePlace(job, tmp_path) as place:
        place.start(0)
        whole = [place.round(0), place.round(1)]
        place.save()
        whole += [place.round(2), place.round(3)]
    with NativePlace(job, tmp_path) as place:
        assert place.start(4) == 2
        assert first_difference(whole[2:], [place.round(2), place.round(3)]) is None
    with NativePlace(job, tmp_path) as place:
        assert place.start(1) == 0  # saved rounds that the record has not: nobody could tell what they were


@pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04 and no more"])
def test_a_damaged_state_is_refused_with_the_mend(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "native.npz").write_bytes(damage)
    with pytest.raises(RunError, match=r"native\.npz: .*cannot be read.*delete it"):
        with NativePlace(small_job(tmp_path), tmp_path) as place:
            place.start(1)


def test_an_interrupt_frees_nodes_only_when_their_threads_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = small_job(tmp_path, train={"local_steps": 3000, "batch": 64})
    events: list[str] = []
    with NativePlace(job, tmp_path, threads=2) as place:
        place.start(0)
        nodes = place._nodes
        work, close = nodes._run, nodes.close

        def watched_work(piece: NDArray[np.int64]) -> list[tuple[int, bytes]]:
            events.append("enter")
            if events == ["enter"]:
                os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C, while threads are in the core
            try:
                return work(piece)
            finally:
                events.append("leave")

        def watched_close() -> None:
            events.append("close")
            close()

        monkeypatch.setattr(nodes, "_run", watched_work)
        monkeypatch.setattr(nodes, "close", watched_close)
        with pytest.raises(KeyboardInterrupt):
            place.round(0)
    assert events.count("enter") == events.count("leave") > 0
    assert events[-1] == "close"


def test_an_unknown_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="no place 'moon'"):
        twin_sim.open_place(small_job(tmp_path), "moon", "native", tmp_path)
