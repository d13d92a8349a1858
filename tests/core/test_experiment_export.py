"""An experiment as C: the image to the byte, an arena that just suffices, and nodes built with it like all others."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import twin_sim.host
from codegen.experiment import export_experiment
from gossamer import native
from gossamer.experiment import load_experiment
from gossamer.job import Job
from gossamer.native import FIRMWARE, BuildError, core_sources, executable, find_compiler, shared_library
from gossamer.place import Row
from gossamer.spec.constants import CONFIG_WORDS, CORE_ERRORS
from tests.link_fakes import small_job
from twin_sim.host import HostPlace

if not native.available():
    pytest.skip("no C compiler", allow_module_level=True)

STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror")
CNN = [
    {"kind": "conv", "filters": 4, "kernel": 3, "stride": 2, "padding": "same", "activation": "relu"},
    {"kind": "flatten"},
    {"kind": "dense", "width": 10},
]
CALLER = """
#include <stddef.h>
#include "experiment.h"
static gs_node_t node;
static uint64_t memory[GS_EXPERIMENT_ARENA_BYTES / 8 + 1];
static size_t sent;
size_t image_bytes(void);
const uint8_t *image(void);
size_t frames_sent(void);
int start(uint16_t id, const uint8_t *key);
int start_with(const uint8_t *other, size_t len, const uint8_t *key, size_t arena_bytes);
static void on_send(void *ctx, const uint8_t *frame, size_t len)
{
    (void)ctx;
    (void)frame;
    sent += len > 0;
}
static const gs_port_t port = {.send = on_send};
size_t image_bytes(void)
{
    return sizeof gs_experiment_image;
}
const uint8_t *image(void)
{
    return gs_experiment_image;
}
size_t frames_sent(void)
{
    return sent;
}
int start(uint16_t id, const uint8_t *key)
{
    return gs_experiment_start(&node, id, key, &port, memory);
}
int start_with(const uint8_t *other, size_t len, const uint8_t *key, size_t arena_bytes)
{
    return gs_node_init(&node, 0, key, &port, other, len, memory, arena_bytes);
}
"""
DECLARED = """
size_t image_bytes(void);
const uint8_t *image(void);
size_t frames_sent(void);
int start(uint16_t id, const uint8_t *key);
int start_with(const uint8_t *other, size_t len, const uint8_t *key, size_t arena_bytes);
"""


def flags(folder: Path) -> tuple[str, ...]:
    return tuple((folder / "experiment.cflags").read_text().split())


def defined(folder: Path, name: str) -> int:
    (value,) = re.findall(rf"#define GS_EXPERIMENT_{name} +(\d+)u", (folder / "experiment.h").read_text())
    return int(value)


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is built from a test's files out of the machine's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def build(folder: Path, compiler: str = "gcc", extra: tuple[str, ...] = ("-O1",)) -> Any:
    (folder / "caller.c").write_text(CALLER)
    sources = [*core_sources(), folder / "experiment.c", folder / "caller.c"]
    return shared_library(
        "experiment", sources, DECLARED, (*flags(folder), *STRICT, *extra), compiler=find_compiler(compiler)
    )


@pytest.mark.parametrize("layers", [[64, 10], CNN], ids=["mlp", "cnn"])
def test_the_text_holds_the_image_and_says_what_is_in_it(tmp_path: Path, layers: Any) -> None:
    job = small_job(tmp_path, model=model_of(layers))
    paths = export_experiment(job, tmp_path / "out")
    assert [path.name for path in paths] == ["experiment.h", "experiment.c", "experiment.cflags", "experiment.toml"]
    assert sorted(paths) == sorted((tmp_path / "out").iterdir())
    body = (tmp_path / "out" / "experiment.c").read_text().split("= {")[1].split("};")[0]
    assert bytes(int(byte) for byte in re.sub(r"/\*.*?\*/", "", body).replace(",", " ").split()) == job.image

    told = dict(re.findall(r"/\* (\w+) = (\S+?)(?: \(\w+\))? \*/", body))
    absent = {f"layer{i}" for i in range(int(job.config["layers"]), 32)}
    assert set(told) == {name for name in CONFIG_WORDS if name.split("_")[0] not in absent}
    for name, value in told.items():
        assert float(value) == pytest.approx(job.config[name], rel=1e-8)
    assert "/* policy = 3 (DPSGD) */" in body
    assert defined(tmp_path / "out", "NODES") == 4 and defined(tmp_path / "out", "IMAGE_BYTES") == len(job.image)

    again = export_experiment(job, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    toml = tomllib.loads((tmp_path / "out" / "experiment.toml").read_text())
    assert toml["policy"]["fifo"] == job.config["fifo"]
    assert load_experiment(tmp_path / "out" / "experiment.toml") == job.experiment.resolved()


def model_of(layers: Any) -> dict[str, Any]:
    return {"layers": layers} if isinstance(layers[0], int) else {"input": [8, 8, 1], "layers": layers}


@pytest.mark.usefixtures("private_cache")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_node_starts_in_exactly_the_arena_that_is_named(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    job = small_job(tmp_path)
    folder = tmp_path / "out"
    export_experiment(job, folder)
    ffi, lib = build(folder, compiler)
    assert bytes(ffi.buffer(lib.image(), lib.image_bytes())) == job.image
    assert int(ffi.cast("uintptr_t", lib.image())) % 8 == 0
    assert lib.start(3, bytes(32)) == 0 and lib.frames_sent() == 1
    arena = defined(folder, "ARENA_BYTES")
    assert lib.start_with(lib.image(), len(job.image), bytes(32), arena) == 0
    assert lib.start_with(lib.image(), len(job.image), bytes(32), arena - 1) == CORE_ERRORS["ARENA"][0]


@pytest.mark.usefixtures("private_cache")
def test_a_build_for_one_experiment_refuses_what_it_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_experiment(small_job(tmp_path), folder)
    others = [small_job(tmp_path, policy={"name": "local"}), small_job(tmp_path, model=model_of(CNN))]
    _, lib = build(folder)
    for job in others:
        assert lib.start_with(job.image, len(job.image), bytes(32), 1 << 20) == CORE_ERRORS["CONFIG"][0]


@pytest.mark.usefixtures("private_cache")
@pytest.mark.parametrize("part", ["SPEC", "WIRE"])
def test_another_version_of_the_core_stops_the_compiler(part: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_experiment(small_job(tmp_path), folder)
    header = folder / "experiment.h"
    text, count = re.subn(rf"GS_{part}_VERSION != \d+", f"GS_{part}_VERSION != 77", header.read_text())
    assert count == 1
    header.write_text(text)
    with pytest.raises(BuildError, match="run gossamer codegen again"):
        build(folder)


@pytest.mark.usefixtures("private_cache")
def test_other_lanes_stop_the_compiler(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_experiment(small_job(tmp_path), folder)
    with pytest.raises(BuildError, match="experiment.cflags"):
        build(folder, extra=("-UGS_LANES", "-DGS_LANES=8"))


@pytest.fixture(scope="module")
def usual() -> Path:
    """Build the program that all runs use, before a test's own cache is set."""
    return twin_sim.host.node_program()


def rows_of(job: Job, folder: Path) -> list[list[Row]]:
    folder.mkdir()
    with HostPlace(job, folder) as place:
        place.start(0)
        return [place.round(r) for r in range(2)]


POLICIES: list[tuple[dict[str, Any], Any]] = [
    ({"name": "gist", "bits": 8, "segments": 4, "sends": 3}, [64, 16, 10]),
    ({"name": "segmented_gossip", "bits": 8, "segments": 4, "pulls": 1}, [64, 10]),
    ({"name": "topk", "bits": 8, "ratio": 0.1}, CNN),
]


@pytest.mark.usefixtures("private_cache")
@pytest.mark.parametrize(("policy", "layers"), POLICIES, ids=[str(policy["name"]) for policy, _ in POLICIES])
def test_nodes_with_the_experiment_built_in_compute_the_same(
    policy: dict[str, Any], layers: Any, usual: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image file is not even there: every process has its own in it."""
    job = small_job(tmp_path, nodes=3, rounds=2, model=model_of(layers), policy=policy)
    folder = tmp_path / "out"
    export_experiment(job, folder)
    sources = [*core_sources(), FIRMWARE / "port" / "host" / "main.c", folder / "experiment.c"]
    built_in = executable("built-in", sources, ("-Os", *flags(folder), "-DGS_EXPERIMENT", *STRICT))
    arena = subprocess.run([built_in, "--print-arena", "nowhere"], capture_output=True, text=True, check=True).stdout
    parts = {name: int(size) for size, name in (line.split(" ", 1) for line in arena.splitlines())}
    assert parts["total"] - parts["node"] == defined(folder, "ARENA_BYTES")

    results = []
    for name, program in (("usual", usual), ("built-in", built_in)):
        monkeypatch.setattr(twin_sim.host, "node_program", lambda program=program: program)
        results.append(rows_of(job, tmp_path / name))
    assert repr(results[0]) == repr(results[1])  # a NaN equals itself
    assert len({row["weights_crc"] for row in results[0][-1]}) >= 1


@pytest.mark.usefixtures("private_cache")
def test_the_flags_leave_other_policies_and_layers_out(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_experiment(small_job(tmp_path), folder)
    compiler = find_compiler("gcc" if shutil.which("gcc") else None)
    symbols = {}
    for name, options in (("all", ()), ("one", flags(folder))):
        target = tmp_path / f"{name}.o"
        source = FIRMWARE / "core" / "gs_policy.c"
        subprocess.run([*compiler.command, "-Os", *options, "-c", source, "-o", target], check=True)
        symbols[name] = subprocess.run(["nm", target], capture_output=True, text=True, check=True).stdout
    others = [f"{name}_share" for name in ("gist", "segmented", "gossipfl", "epidemic", "topk", "fedavg")]
    assert [share for share in others if share not in symbols["all"]] == []
    assert [share for share in others if share in symbols["one"]] == []
    assert "dpsgd_share" in symbols["one"]
