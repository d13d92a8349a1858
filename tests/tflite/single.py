"""Build small models without TensorFlow, and run them on the interpreters that are right by definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from codegen import oracle
from codegen.ir import DType, Graph, Operator, Options, Quantization, Tensor
from codegen.write import write

Array = NDArray[Any]


def quantized(scale: float | Sequence[float], zero_point: int | Sequence[int] = 0, axis: int = 0) -> Quantization:
    """Make a quantization; one zero point serves all scales."""
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return Quantization(scales, np.broadcast_to(np.asarray(zero_point, np.int32), scales.shape).copy(), axis)


def int8(
    name: str,
    shape: Sequence[int],
    scale: float | Sequence[float] = 0.05,
    zero_point: int | Sequence[int] = 0,
    data: ArrayLike | None = None,
    axis: int = 0,
    bits: int = 8,
) -> Tensor:
    """Make an activation, or a constant where there is data; several scales are for the indices of `axis`."""
    values = None if data is None else np.asarray(data, np.int8).reshape(shape)
    return Tensor(name, tuple(shape), DType.INT8, quantized(scale, zero_point, axis), values, bits=bits)


def int32(name: str, data: ArrayLike, scale: float | Sequence[float] | None = None) -> Tensor:
    """Make a constant: axes, a shape, or a bias where there is a scale."""
    values = np.asarray(data, np.int32)
    return Tensor(name, values.shape, DType.INT32, None if scale is None else quantized(scale), values)


def plain(name: str, shape: Sequence[int], dtype: DType) -> Tensor:
    """Make an activation without quantization: float32, or the int32 of ARG_MAX."""
    return Tensor(name, tuple(shape), dtype)


def one_operator(kind: str, inputs: Sequence[Tensor | None], output: Tensor | list[Tensor], options: Options) -> Graph:
    """Make a graph of one operator; what is not constant and not variable is an input of the graph."""
    outputs = output if isinstance(output, list) else [output]
    return of_operators([Operator(kind, list(inputs), outputs, options)], outputs)


def of_operators(operators: list[Operator], outputs: list[Tensor], name: str = "test") -> Graph:
    """Make a graph; what no operator makes and is neither constant nor variable is an input, in order of first use."""
    made = {id(tensor) for operator in operators for tensor in operator.outputs}
    inputs = {
        id(tensor): tensor
        for operator in operators
        for tensor in operator.inputs
        if tensor is not None and tensor.data is None and not tensor.variable and id(tensor) not in made
    }
    return Graph(name, operators, list(inputs.values()), outputs)


def random_inputs(graph: Graph, count: int, seed: int = 0) -> list[list[Array]]:
    """Draw sets of inputs: all of int8, and of float32 what quantizes to a bit more than that."""
    draw = np.random.default_rng(seed)
    return [[_random(tensor, draw) for tensor in graph.inputs] for _ in range(count)]


def _random(tensor: Tensor, draw: np.random.Generator) -> Array:
    if tensor.dtype is DType.FLOAT32:
        return draw.normal(0, 4, tensor.shape).astype(np.float32)
    limits = np.iinfo(tensor.dtype.numpy)
    values: Array = draw.integers(limits.min, limits.max, tensor.shape, tensor.dtype.numpy, endpoint=True)
    return values


def every_int8(graph: Graph) -> list[list[Array]]:
    """Make sets of inputs in which every element takes every value of int8, inputs out of step with each other."""
    steps = np.arange(256)
    return [
        [
            ((np.arange(tensor.size) + step * (2 * place + 1)) % 256 - 128).astype(np.int8).reshape(tensor.shape)
            for place, tensor in enumerate(graph.inputs)
        ]
        for step in steps
    ]


def tflite_micro(graph: Graph, inputs: oracle.Inputs) -> list[list[Array]]:
    """Return what tflite-micro computes, for each set of inputs in turn."""
    return oracle.run(write(graph), inputs).outputs


def litert(graph: Graph, inputs: oracle.Inputs) -> list[list[Array]]:
    """Return what LiteRT's reference kernels compute, for each set of inputs in turn. In this process."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=write(graph), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    found = []
    for values in inputs:
        for place, value in zip(places, values, strict=True):
            interpreter.set_tensor(place, value)
        interpreter.invoke()
        found.append([np.array(interpreter.get_tensor(place)) for place in outputs])
    return found
