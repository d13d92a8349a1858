"""Define what lowering yields, and find the function that lowers an operator."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.ir import Operator, OperatorError, Tensor

# The modules that register operators, one a family.
_FAMILIES = ("dense", "elementwise", "movement", "pooling", "recurrent", "tables")


@dataclass(frozen=True, eq=False)
class Table:
    """A constant array, emitted as `static const` and aligned to 16 bytes; its C type follows from the dtype."""

    values: NDArray[Any]  # int8, uint8, int16, uint16, int32, uint32 or float32; emitted flat
    role: str = "table"  # names it in C and in the account of flash: weights, bias, multipliers, shifts, ...


Field = int | float | Table | tuple[int, ...] | str | None
"""A member of a parameter struct: a number, an array, a small inline array, a C constant by name, or a null pointer."""


@dataclass(frozen=True)
class Struct:
    """Initialise a kernel's parameters: the C type, and its members by name; what is left out is zero."""

    ctype: str
    fields: Mapping[str, Field]


@dataclass(frozen=True, eq=False)
class Call:
    """Call one kernel."""

    operator: Operator
    kernel: str  # a function that firmware/core declares
    parameters: Struct
    inputs: tuple[Tensor, ...]  # passed as pointers, in this order; constants among them become tables
    outputs: tuple[Tensor, ...]
    scratch_bytes: int = 0  # 16-byte aligned, only during the call
    in_place: tuple[int, ...] = ()  # positions of `inputs` whose storage output 0 may take over, if it is no larger
    state: tuple[Tensor, ...] = ()  # variable tensors, passed after the outputs, read and written


@dataclass(frozen=True, eq=False)
class Alias:
    """Do nothing: the output's elements are the input's, in the same order and of the same type."""

    operator: Operator
    source: Tensor
    output: Tensor


Lowered = Call | Alias
Lowering = Callable[[Operator], Lowered]
_LOWERINGS: dict[str, Lowering] = {}


def lowers(*kinds: str) -> Callable[[Lowering], Lowering]:
    """Register a function for operators of these kinds. It raises OperatorError for what it cannot do."""

    def register(function: Lowering) -> Lowering:
        for kind in kinds:
            assert kind not in _LOWERINGS, kind
            _LOWERINGS[kind] = function
        return function

    return register


def supported() -> tuple[str, ...]:
    """List the kinds of operators that can be lowered by themselves."""
    for family in _FAMILIES:
        importlib.import_module(f"codegen.lower.{family}")
    return tuple(sorted(_LOWERINGS))


def lower(operator: Operator) -> Lowered:
    """Turn one operator, whose shapes are known, into a call. Raises OperatorError."""
    if operator.kind not in supported():
        raise OperatorError(
            operator,
            "this operator is not supported",
            "replace it in the model; `gossamer codegen --operators` lists what can be exported",
        )
    return _LOWERINGS[operator.kind](operator)


def as_int8(table: NDArray[Any], role: str) -> Table:
    """Make a table of int8; the values must fit."""
    assert table.min(initial=0) >= -128 and table.max(initial=0) <= 127, role
    return Table(np.ascontiguousarray(table, np.int8), role)
