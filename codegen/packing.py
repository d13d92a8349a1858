"""Pack weights of 8, 4, 2 or 1 bits as the kernels of firmware/core/gs_q8_matrix.h read them.

Source: FullPack (Katebi et al., 2022), whose interleaving unpacks neighbours in order with two shifts and leaves
no bits unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

GROUP_BYTES: Final = 16


def row_bytes(terms: int, bits: int) -> int:
    """Count the bytes of a packed row."""
    group = GROUP_BYTES * 8 // bits
    return terms // group * GROUP_BYTES + (terms % group * bits + 7) // 8


def pack_rows(rows: NDArray[Any], bits: int) -> NDArray[np.int8]:
    """Pack int8 [rows, terms] to int8 [rows, row_bytes]. The values must fit; those of one bit are -1 and 1."""
    count, terms = rows.shape
    places = 8 // bits
    group = GROUP_BYTES * places
    rest = terms % group
    packed = [
        _merge(rows[:, : terms - rest].reshape(count, -1, places, GROUP_BYTES), bits).reshape(count, -1),
        _merge(_laid_out(rows[:, terms - rest :], places), bits),
    ]
    return np.concatenate(packed, axis=1)


def unpack_rows(packed: NDArray[np.int8], terms: int, bits: int) -> NDArray[np.int8]:
    """Return the int8 [rows, terms] that `pack_rows` packed."""
    count = len(packed)
    places = 8 // bits
    groups = terms // (GROUP_BYTES * places)
    main, rest = np.split(packed, [groups * GROUP_BYTES], axis=1)
    values = [
        _parts(main.reshape(count, groups, GROUP_BYTES), bits).reshape(count, -1),
        _parts(rest, bits).reshape(count, -1),
    ]
    return np.concatenate(values, axis=1)[:, :terms]


def readable(matrices: Sequence[NDArray[np.int8]]) -> NDArray[np.int8]:
    """Join packed matrices, and append what a kernel may read beyond them: every row's last group is read whole."""
    table = np.concatenate([matrix.reshape(-1) for matrix in matrices])
    ends = np.cumsum([matrix.size for matrix in matrices])
    reach = max(end - matrix.shape[1] % -GROUP_BYTES for end, matrix in zip(ends, matrices, strict=True))
    return np.append(table, np.zeros(reach - table.size, np.int8))


def _laid_out(rest: NDArray[Any], places: int) -> NDArray[Any]:
    """Lay out what is left of rows [rows, t] as [rows, places, ceil(t / places)]; what is missing is 1, a valid bit."""
    count, terms = rest.shape
    missing = -terms % places
    return np.pad(rest, ((0, 0), (0, missing)), constant_values=1).reshape(count, places, (terms + missing) // places)


def _merge(values: NDArray[Any], bits: int) -> NDArray[np.int8]:
    """Merge values [..., places, n] into bytes [..., n], the first place in the lowest bits."""
    places = 8 // bits
    shifts = (np.arange(places, dtype=np.uint8) * bits)[:, None]
    codes = (values < 0).astype(np.uint8) if bits == 1 else values.astype(np.uint8) & np.uint8(2**bits - 1)
    assert np.array_equal(_values(codes, bits), values), "values do not fit their bits"
    merged: NDArray[np.uint8] = np.bitwise_or.reduce(codes << shifts, axis=-2)
    return merged.view(np.int8)


def _parts(packed: NDArray[np.int8], bits: int) -> NDArray[np.int8]:
    """Split bytes [..., n] into the values [..., places, n]."""
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    return _values((packed.view(np.uint8)[..., None, :] >> shifts) & np.uint8(2**bits - 1), bits)


def _values(codes: NDArray[np.uint8], bits: int) -> NDArray[np.int8]:
    if bits == 1:
        return (1 - 2 * codes.astype(np.int8)).astype(np.int8)
    unused = 8 - bits
    return (codes << np.uint8(unused)).view(np.int8) >> np.int8(unused)
