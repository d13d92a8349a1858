"""Run generated C of int8 models on the emulated processor, and count the instructions it takes."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.emit import emit
from codegen.kernels import sources_of
from codegen.program import Program
from gossamer import toolchain
from gossamer.native import FIRMWARE
from gossamer.toolchain import INSTRUCTIONS_A_CYCLE, Image, ToolchainError, build_image, run_image
from twin_emu.firmware import PORT

_INFER: Final = FIRMWARE / "port" / "xtensa_infer"
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, eq=False)
class Inference:
    """Hold what a model computed, int8 [n, *shape], and the mean instructions of one invocation."""

    outputs: NDArray[np.int8]
    instructions: float
    image: Image

    def shaped(self, shape: tuple[int, ...]) -> Inference:
        """Return the same with outputs of this shape, its first dimension 1."""
        return replace(self, outputs=self.outputs.reshape(-1, *shape[1:]))


def run_model(program: Program, inputs: NDArray[Any], *, offset: int = 0) -> Inference:
    """Run a model of one int8 input and one int8 output over `inputs`, int8 [n, *shape].

    The caller's buffers begin `offset` bytes behind an aligned address: the processor faults at a word that is not
    aligned. Raises ToolchainError: it does not fit the board, or faults.
    """
    name = program.settings.name
    source = program.graph.outputs[0]
    invoke = (
        f'#include "{name}.h"\n#define JOB_INVOKE {name}_invoke\n#define JOB_ARENA_BYTES {name.upper()}_ARENA_BYTES\n'
    )
    with tempfile.TemporaryDirectory(prefix="gossamer-") as folder:
        files = emit(program)
        for file, text in files.items():
            (Path(folder) / file).write_text(text, "utf-8")
        sources = [Path(folder) / file for file in files if file.endswith(".c")]
        sources += sources_of(call.kernel for call in program.calls)
        return run_sources(Path(folder), sources, invoke, inputs, source.bytes, offset).shaped(source.shape)


def run_sources(
    folder: Path, sources: Sequence[Path], invoke: str, inputs: NDArray[Any], output_bytes: int, offset: int = 0
) -> Inference:
    """Run C files; `invoke` defines JOB_INVOKE and JOB_ARENA_BYTES (firmware/port/xtensa_infer/main.c)."""
    flat = np.ascontiguousarray(inputs, np.int8).reshape(len(inputs), -1)
    rows = ",\n".join("{" + ", ".join(map(str, row)) + "}" for row in flat.tolist())
    (folder / "job.h").write_text(
        f"#include <stdint.h>\n{invoke}#define JOB_COUNT {len(flat)}u\n#define JOB_IN_BYTES {flat.shape[1]}u\n"
        f"#define JOB_OUT_BYTES {output_bytes}u\n#define JOB_OFFSET {offset}u\n"
        f"static const int8_t job_inputs[{len(flat)}][{flat.shape[1]}] = {{\n{rows}}};\n"
    )
    run_time = [path for path in sorted(PORT.glob("*.[cS]")) if path.name != "main.c"]
    image = build_image(
        toolchain.find(),
        [*sources, _INFER / "main.c", *run_time],
        PORT / "link.ld",
        folder / "infer.elf",
        include=[PORT, folder],
    )
    written = run_image(image, timeout_s=_TIMEOUT_S, counted=True)
    if len(written) != len(flat) * (4 + output_bytes):
        raise ToolchainError(f"the model did not run to its end; it wrote {written[-16:]!r}", image.elf.name)
    found = np.frombuffer(written, np.uint8).reshape(len(flat), -1)
    cycles = [struct.unpack_from("<I", row)[0] for row in found[:, :4].copy()]
    return Inference(found[:, 4:].view(np.int8), INSTRUCTIONS_A_CYCLE * float(np.mean(cycles)), image)
