"""Refuse programs that need more memory than there is, and name what takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from codegen._names import short_names
from codegen.ir import ModelError, Operator
from codegen.memory import Buffer, Plan, live_bytes

_NAMED: Final = 4


def check_ram(
    buffers: Sequence[Buffer], plan: Plan, operators: Sequence[Operator], limit_bytes: int | None, where: str
) -> None:
    """Raise ModelError when the arena is larger than the limit, with the tensors alive where most is."""
    if limit_bytes is None or plan.peak_bytes <= limit_bytes:
        return
    call = max(range(len(operators)), key=lambda number: live_bytes(buffers, number))
    operator = operators[call]
    short = short_names([operator.output.name, *(buffer.name for buffer in buffers)])
    alive = [
        (buffer.size_bytes, short[buffer.name])
        for buffer in buffers
        if buffer.pinned or buffer.first <= call <= buffer.last
    ]
    raise ModelError(
        f"the arena needs {plan.peak_bytes:,} bytes, the limit is {limit_bytes:,}; most is alive at call {call} "
        f"({operator.kind} {short[operator.output.name]}): {_named(alive)}",
        where,
        "shrink these tensors, raise --ram-limit, or let --psram take some",
    )


def check_flash(rows: Sequence[tuple[str, str, int]], limit_bytes: int | None, where: str) -> None:
    """Raise ModelError when the constants (owner, role, bytes) are larger than the limit, with the largest."""
    total = sum(size for _, _, size in rows)
    if limit_bytes is None or total <= limit_bytes:
        return
    short = short_names(owner for owner, _, _ in rows)
    raise ModelError(
        f"the constants take {total:,} bytes of flash, the limit is {limit_bytes:,}: "
        f"{_named([(size, f'{short[owner]} {role}') for owner, role, size in rows])}",
        where,
        "raise --flash-limit, take fewer bits (--weights 4), or a smaller model",
    )


def _named(sizes: Sequence[tuple[int, str]]) -> str:
    """Name the largest."""
    largest = sorted(sizes, key=lambda pair: (-pair[0], pair[1]))
    shown = ", ".join(f"{name} {size:,}" for size, name in largest[:_NAMED])
    more = len(largest) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown
