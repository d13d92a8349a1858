"""Builds: made once, never stale, and refused with a mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.native import FAST, NATIVE, BuildError, available, core_sources, executable, find_compiler, shared_library

pytestmark = pytest.mark.skipif(not available(), reason="no C compiler here")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gossamer"


def source(folder: Path, answer: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "answer.h").write_text(f"#define ANSWER {answer}\n")
    path = folder / "answer.c"
    path.write_text('#include "answer.h"\nint answer(void);\nint answer(void)\n{\n    return ANSWER;\n}\n')
    return path


def answer(path: Path, flags: tuple[str, ...] = ("-O1",)) -> int:
    _, lib = shared_library("answer", [path], "int answer(void);", flags)
    return int(lib.answer())


def test_a_library_is_built_once(tmp_path: Path, cache: Path) -> None:
    path = source(tmp_path / "c", 42)
    assert answer(path) == 42
    [built] = cache.iterdir()
    before = built.stat().st_mtime_ns
    assert answer(path) == 42
    assert [built.stat().st_mtime_ns] == [found.stat().st_mtime_ns for found in cache.iterdir()] == [before]


def test_a_change_of_header_or_flags_builds_anew(tmp_path: Path, cache: Path) -> None:
    assert answer(source(tmp_path / "c", 42)) == 42
    assert answer(source(tmp_path / "c", 43)) == 43
    assert answer(source(tmp_path / "c", 43), FAST) == 43
    assert len(list(cache.iterdir())) == 3


def test_a_program_is_built(tmp_path: Path) -> None:
    path = tmp_path / "main.c"
    path.write_text("int main(void)\n{\n    return 0;\n}\n")
    assert executable("nothing", [path]).stat().st_mode & 0o100


def test_the_core_has_sources() -> None:
    assert {"gs_nn.c", "gs_node.c"} <= {path.name for path in core_sources()}


def test_code_that_does_not_compile_leaves_no_trace(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "wrong.c"
    path.write_text("int wrong(void) { return missing; }\n")
    with pytest.raises(BuildError, match="missing"):
        executable("wrong", [path])
    assert not list(cache.iterdir())


def test_no_compiler_is_said_with_a_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert not available()
    with pytest.raises(BuildError, match="/nowhere/cc.*install gcc or clang"):
        find_compiler()


def test_flags_that_a_compiler_refuses_are_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="-fno-such-flag-anywhere"):
        executable("answer", [source(tmp_path / "c", 1)], ("-fno-such-flag-anywhere",))


def test_a_cache_that_cannot_be_written_is_said_with_a_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="set XDG_CACHE_HOME"):
        executable("answer", [source(tmp_path / "c", 1)])


def test_native_becomes_a_flag_of_the_compiler() -> None:
    assert NATIVE not in find_compiler().resolve(FAST)
