"""Run each kind of layer forth and back (SPEC.md 3.4, 3.6), many samples and nodes at once.

A value is [H, W, C, B, N]: samples and nodes stand behind the numbers of a value. W is [O, k_y, k_x, I, N], b [O, N];
those of frozen layers, like inputs that all nodes share, have N = 1.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from gossamer.spec import fmath
from gossamer.spec.constants import NORM_EPSILON
from gossamer.spec.nn._blocks import F32, I64, Bool, add_products, blocks, ordered_sum
from gossamer.spec.nn._model import Layer, Shape

_EPSILON = np.float32(float.fromhex(NORM_EPSILON))
_ONE = np.float32(1)


def relu(z: F32) -> F32:
    """Keep what is above 0."""
    return np.where(z > 0, z, np.float32(0))


# --- DENSE -----------------------------------------------------------------------------------------------------------


def dense(weights: F32, bias: F32, x: F32) -> F32:
    """Return z [out, B, N] of x [in, B, N]; W is [out, in, N]."""
    fan_out, fan_in, nodes = weights.shape
    samples, nodes = x.shape[1], max(nodes, x.shape[2])
    z = np.empty((fan_out, samples, nodes), np.float32)
    z[:] = bias[:, None, :]
    for rows in blocks(fan_out, samples * nodes):
        add_products(z[rows], ((weights[rows, i, None, :], x[None, i]) for i in range(fan_in)))
    return z


def dense_parameters(dz: F32, x: F32, g_weights: F32, g_bias: F32) -> None:
    """Fill gW [out, in, N] and gb [out, N] from dz [out, B, N]."""
    fan_out, fan_in, nodes = g_weights.shape
    samples = x.shape[1]
    for columns in blocks(fan_in, fan_out * nodes):
        block = np.zeros((fan_out, columns.stop - columns.start, nodes), np.float32)
        add_products(block, ((dz[:, None, s], x[None, columns, s]) for s in range(samples)))
        g_weights[:, columns] = block
    g_bias[:] = ordered_sum(dz.swapaxes(0, 1))


def dense_input(weights: F32, dz: F32) -> F32:
    """Return dx [in, B, N]."""
    fan_out, fan_in, _ = weights.shape
    _, samples, nodes = dz.shape
    dx = np.zeros((fan_in, samples, nodes), np.float32)
    for rows in blocks(fan_in, samples * nodes):
        add_products(dx[rows], ((weights[o, rows, None, :], dz[None, o]) for o in range(fan_out)))
    return dx


# --- windows ---------------------------------------------------------------------------------------------------------


class _Tap(NamedTuple):
    """Pair the outputs for which a position of the kernel lies inside the input with what they read there."""

    number: int
    row: int
    column: int
    outputs: tuple[slice, slice]
    inputs: tuple[slice, slice]


def _axis(size: int, outputs: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return the outputs y with 0 <= y * stride + offset < size, and those inputs."""
    first = max(0, -(offset // stride))
    end = max(first, min(outputs, (size - 1 - offset) // stride + 1))
    start = first * stride + offset
    return slice(first, end), slice(start, max(start, (end - 1) * stride + offset + 1), stride)


def _taps(layer: Layer, size: Shape) -> list[_Tap]:
    """List the positions of the kernel that read anything, in order: most of a huge padded window never do."""
    height, width, _ = layer.output(size)
    above, left = layer.before(size)
    rows = [_axis(size.height, height, layer.stride[0], row - above) for row in range(layer.kernel[0])]
    columns = [_axis(size.width, width, layer.stride[1], column - left) for column in range(layer.kernel[1])]
    inside = itertools.product(_reading(rows), _reading(columns))
    return [
        _Tap(number, row, column, (rows[row][0], columns[column][0]), (rows[row][1], columns[column][1]))
        for number, (row, column) in enumerate(inside)
    ]


def _reading(axis: list[tuple[slice, slice]]) -> list[int]:
    """Number the positions of the kernel that read anything."""
    return [at for at, (outputs, _) in enumerate(axis) if outputs.start < outputs.stop]


def _shape_of(x: F32) -> Shape:
    return Shape(*x.shape[:3])


# --- CONV ------------------------------------------------------------------------------------------------------------


def conv(layer: Layer, weights: F32, bias: F32, x: F32) -> F32:
    """Return z [H', W', O, B, N]."""
    size, groups = _shape_of(x), layer.groups
    height, width, outputs = layer.output(size)
    nodes = max(weights.shape[-1], x.shape[-1])
    z = np.empty((height, width, outputs, x.shape[3], nodes), np.float32)
    z[:] = bias[:, None, :]
    w = weights.reshape(groups, outputs // groups, *weights.shape[1:])[:, :, :, :, :, None]  # [G, O/G, ky, kx, I, 1, N]
    grouped_z = z.reshape(height, width, groups, outputs // groups, *z.shape[3:])
    grouped_x = x.reshape(size.height, size.width, groups, 1, -1, *x.shape[3:])  # [H, W, G, 1, I, B, N]
    for tap in _taps(layer, size):
        target, read = grouped_z[tap.outputs], grouped_x[tap.inputs]
        add_products(target, ((w[:, :, tap.row, tap.column, i], read[..., i, :, :]) for i in range(w.shape[4])))
    return z


def conv_parameters(layer: Layer, dz: F32, x: F32, g_weights: F32, g_bias: F32) -> None:
    """Fill gW [O, k_y, k_x, I, N] and gb [O, N] from dz [H', W', O, B, N]."""
    size, groups = _shape_of(x), layer.groups
    height, width, outputs, samples, _ = dz.shape
    total = np.zeros((groups, outputs // groups, *g_weights.shape[1:]), np.float32)
    grouped_dz = dz.reshape(height, width, groups, outputs // groups, 1, 1, 1, *dz.shape[3:])
    grouped_x = x.reshape(size.height, size.width, groups, -1, *x.shape[3:]).transpose(2, 0, 1, 3, 4, 5)
    above, left = layer.before(size)
    rows = [_kernel_axis(size.height, layer.kernel[0], y * layer.stride[0] - above) for y in range(height)]
    columns = [_kernel_axis(size.width, layer.kernel[1], y * layer.stride[1] - left) for y in range(width)]
    for b in range(samples):
        for y, (k_rows, in_rows) in enumerate(rows):
            for x_, (k_columns, in_columns) in enumerate(columns):
                total[:, :, k_rows, k_columns] += (
                    grouped_dz[y, x_, ..., b, :] * grouped_x[:, None, in_rows, in_columns, :, b]
                )
    g_weights[:] = total.reshape(g_weights.shape)
    g_bias[:] = ordered_sum(dz.transpose(3, 0, 1, 2, 4).reshape(-1, outputs, dz.shape[4]))


def _kernel_axis(size: int, kernel: int, first: int) -> tuple[slice, slice]:
    """Return the part of a kernel that starts at input position `first` and lies inside, and the inputs it reads."""
    begin, end = max(0, -first), min(kernel, size - first)
    return slice(begin, end), slice(first + begin, first + end)


def conv_input(layer: Layer, weights: F32, dz: F32, size: Shape) -> F32:
    """Return dx [H, W, C, B, N]."""
    groups = layer.groups
    height, width, outputs, samples, nodes = dz.shape
    dx = np.zeros((*size, samples, nodes), np.float32)
    w = weights.reshape(groups, outputs // groups, *weights.shape[1:])[..., None, :]  # [G, O/G, ky, kx, I, 1, N]
    grouped_dz = dz.reshape(height, width, groups, outputs // groups, 1, samples, nodes)
    grouped_dx = dx.reshape(size.height, size.width, groups, -1, samples, nodes)
    for tap in reversed(_taps(layer, size)):  # from the last position of the kernel on, the outputs ascend
        target, read = grouped_dx[tap.inputs], grouped_dz[tap.outputs]
        terms = ((w[:, o, tap.row, tap.column], read[:, :, :, o]) for o in range(outputs // groups))
        add_products(target, terms)
    return dx


# --- POOL_MAX, POOL_AVERAGE ------------------------------------------------------------------------------------------


def pool_max(layer: Layer, x: F32) -> tuple[F32, I64]:
    """Return z [H', W', C, B, N] and the position of the kernel that gave each."""
    size = _shape_of(x)
    shape = (*layer.output(size), *x.shape[3:])
    z, best = np.zeros(shape, np.float32), np.full(shape, -1, np.int64)
    for tap in _taps(layer, size):
        held, number, read = z[tap.outputs], best[tap.outputs], x[tap.inputs]
        taken = (number < 0) | (read > held)
        held[taken], number[taken] = read[taken], tap.number
    return z, best


def pool_max_input(layer: Layer, dz: F32, best: I64, size: Shape) -> F32:
    """Return dx [H, W, C, B, N]."""
    dx = np.zeros((*size, *dz.shape[3:]), np.float32)
    for tap in reversed(_taps(layer, size)):
        # A +0 for the others changes nothing: a sum that started from +0 is never -0.
        dx[tap.inputs] += np.where(best[tap.outputs] == tap.number, dz[tap.outputs], np.float32(0))
    return dx


def _counts(layer: Layer, size: Shape) -> F32:
    """Count the inputs that each window reads, [H', W', 1, 1, 1]."""
    counts = np.zeros((*layer.output(size)[:2], 1, 1, 1), np.float32)
    for tap in _taps(layer, size):
        counts[tap.outputs] += 1
    return counts


def pool_average(layer: Layer, x: F32) -> F32:
    """Return z [H', W', C, B, N]."""
    size = _shape_of(x)
    z = np.zeros((*layer.output(size), *x.shape[3:]), np.float32)
    for tap in _taps(layer, size):
        z[tap.outputs] += x[tap.inputs]
    z /= _counts(layer, size)
    return z


def pool_average_input(layer: Layer, dz: F32, size: Shape) -> F32:
    """Return dx [H, W, C, B, N]."""
    share = dz / _counts(layer, size)
    dx = np.zeros((*size, *dz.shape[3:]), np.float32)
    for tap in reversed(_taps(layer, size)):
        dx[tap.inputs] += share[tap.outputs]
    return dx


# --- NORM ------------------------------------------------------------------------------------------------------------


class Normal(NamedTuple):
    """Hold what NORM computes on the way: h [H, W, C, B, N], and n and r [C, B, N] of each channel's group."""

    h: F32
    n: np.float32
    r: F32


def _group_sum(terms: F32, groups: int) -> F32:
    """Return the group sum of each channel's group, [C, B, N]."""
    by_channel = ordered_sum(terms.reshape(-1, *terms.shape[2:]))
    grouped = by_channel.reshape(groups, -1, *by_channel.shape[1:])
    return np.repeat(ordered_sum(grouped.swapaxes(0, 1)), grouped.shape[1], axis=0)


def normalize(layer: Layer, x: F32) -> Normal:
    """Shift and scale every group of channels of every sample."""
    n = np.float32(_shape_of(x).numbers // layer.groups)
    d = x - _group_sum(x, layer.groups) / n
    r = _ONE / fmath.sqrt(_group_sum(d * d, layer.groups) / n + _EPSILON)
    return Normal(d * r, n, r)


def norm(normal: Normal, weights: F32, bias: F32) -> F32:
    """Return z [H, W, C, B, N]; W and b are [C, N]."""
    return weights[:, None, :] * normal.h + bias[:, None, :]


def norm_parameters(normal: Normal, dz: F32, g_weights: F32, g_bias: F32) -> None:
    """Fill gW and gb [C, N]."""
    for g, terms in ((g_weights, dz * normal.h), (g_bias, dz)):
        channels, nodes = g.shape
        g[:] = ordered_sum(terms.transpose(3, 0, 1, 2, 4).reshape(-1, channels, nodes))


def norm_input(layer: Layer, normal: Normal, weights: F32, dz: F32) -> F32:
    """Return dx [H, W, C, B, N]."""
    q = dz * weights[:, None, :]
    s1 = _group_sum(q, layer.groups) / normal.n
    s2 = _group_sum(q * normal.h, layer.groups) / normal.n
    return ((q - s1) - normal.h * s2) * normal.r


# --- DROPOUT ---------------------------------------------------------------------------------------------------------


def drop(layer: Layer, x: F32, dropped: Bool) -> F32:
    """Zero what is dropped and scale the rest; of values forth, of gradients back."""
    keep = _ONE - np.float32(layer.rate24) * np.float32(2.0**-24)
    return np.where(dropped, np.float32(0), x * (_ONE / keep))
