"""Compile programs for this machine and run them: the generated C itself, called from Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.emit import emit, prototype
from codegen.ir import Tensor
from codegen.kernels import kernel_sources
from codegen.program import Program
from codegen.storage import Region
from gossamer.native import FAST, shared_library

Array = NDArray[Any]
_ALIGN = 16
_GUARD_BYTES = 64
_GUARD = 0xA5


class HostModel:
    """Run one program that `build` compiled."""

    def __init__(self, program: Program, ffi: Any, library: Any) -> None:
        self.program = program
        self._ffi = ffi
        self._invoke = getattr(library, f"{program.settings.name}_invoke")
        self._arena = _Memory(program.arena.peak_bytes)
        self._memories = [self._arena, *([_Memory(program.psram.peak_bytes)] if program.settings.psram else [])]
        if program.layout.state_bytes:
            self._reset = getattr(library, f"{program.settings.name}_reset")
            self.reset()

    def reset(self) -> None:
        """Forget the state of earlier invocations."""
        self._reset(*(self._pointer(memory.bytes) for memory in self._memories))

    def invoke(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the model once; arrays have the tensors' shapes and types.

        Raises MemoryError when the program wrote outside its arena or its outputs, which is a defect of the generator.
        """
        graph = self.program.graph
        inputs = [_as(array, tensor) for array, tensor in zip(inputs, graph.inputs, strict=True)]
        outputs = [_Memory(tensor.bytes) for tensor in graph.outputs]
        status = self._invoke(
            *(self._pointer(array) for array in inputs),
            *(self._pointer(output.bytes) for output in outputs),
            *(self._pointer(memory.bytes) for memory in self._memories),
        )
        if status != 0:
            raise MemoryError(f"{self.program.settings.name}_invoke returned {status}")
        for memory in (*self._memories, *outputs):
            memory.check()
        return [_view(memory.bytes, tensor).copy() for memory, tensor in zip(outputs, graph.outputs, strict=True)]

    def prepared(self, inputs: Sequence[Array]) -> Callable[[], int]:
        """Return a call that runs the model on these inputs whenever it is made; to be timed, so nothing is checked."""
        graph = self.program.graph
        inputs = [_as(array, tensor) for array, tensor in zip(inputs, graph.inputs, strict=True)]
        outputs = [_Memory(tensor.bytes).bytes for tensor in graph.outputs]
        arrays = [*inputs, *outputs, *(memory.bytes for memory in self._memories)]
        pointers = [self._pointer(array) for array in arrays]

        def call(_held: Sequence[Array] = arrays) -> int:
            status: int = self._invoke(*pointers)
            return status

        return call

    def tensor(self, tensor: Tensor) -> Array | None:
        """Return what a tensor holds after `invoke`, or None if it has no place in the arena.

        Only a program compiled with `keep_all` keeps every tensor to the end.
        """
        if not self.program.layout.has(tensor):
            return None
        place = self.program.layout.of(tensor)
        if place.region is not Region.ARENA:
            return None
        return _view(self._arena.bytes[place.offset : place.offset + tensor.bytes], tensor).copy()

    def _pointer(self, array: Array) -> Any:
        return self._ffi.cast("void *", array.ctypes.data)


class _Memory:
    """Hold aligned bytes between two guards."""

    def __init__(self, size_bytes: int) -> None:
        self._all = np.full(size_bytes + 2 * _GUARD_BYTES + _ALIGN, _GUARD, np.uint8)
        start = _GUARD_BYTES + -(self._all.ctypes.data + _GUARD_BYTES) % _ALIGN
        self.bytes: Array = self._all[start : start + size_bytes]
        self._guards = (self._all[:start], self._all[start + size_bytes :])

    def check(self) -> None:
        if any((guard != _GUARD).any() for guard in self._guards):
            raise MemoryError("the model wrote outside its memory")


def build(programs: Sequence[Program], flags: Sequence[str] = FAST) -> list[HostModel]:
    """Compile programs of different names into one library, and load it. Raises BuildError."""
    cdef = []
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for program in programs:
            for name, text in emit(program).items():
                path = Path(folder) / name
                path.write_text(text, "utf-8")
                if path.suffix == ".c":
                    sources.append(path)
            cdef.append(_untyped(program))
        name = programs[0].settings.name
        ffi, library = shared_library(name, sources, "\n".join(cdef), flags, base=kernel_sources())
    return [HostModel(program, ffi, library) for program in programs]


def _untyped(program: Program) -> str:
    """Declare the functions with void pointers, which is what Python passes."""
    name = program.settings.name
    count = prototype(program).count("*")
    lines = [f"int {name}_invoke({', '.join(['void *'] * count)});"]
    if program.layout.state_bytes:
        lines.append(f"void {name}_reset({', '.join(['void *'] * (2 if program.settings.psram else 1))});")
    return "\n".join(lines)


def _as(array: Array, tensor: Tensor) -> Array:
    given = np.ascontiguousarray(array)
    if given.dtype != tensor.dtype.numpy or given.size != tensor.size:
        raise ValueError(f"{tensor.name} is {tensor.dtype.value} of {tensor.shape}, not {given.dtype} of {given.shape}")
    return given


def _view(data: Array, tensor: Tensor) -> Array:
    return data.view(tensor.dtype.numpy).reshape(tensor.shape)
