"""Turn a trained network of an experiment into an int8 graph, as post-training quantization does.

Weights are symmetric, one scale an output channel; activations are affine, one scale a tensor, from the least and the
greatest value that calibration samples reach; biases are int32 of the product of both scales.

Source: TensorFlow Lite 8-bit quantization specification.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.ir import (
    Activation,
    ConvOptions,
    DenseOptions,
    DType,
    FusedOptions,
    Graph,
    ModelError,
    Operator,
    Options,
    Padding,
    PoolOptions,
    Quantization,
    ReshapeOptions,
    Tensor,
)
from gossamer.spec import constants
from gossamer.spec.constants import LayerKind
from gossamer.spec.nn import F32, Layer, Network, Shape, activations

Array = NDArray[Any]
_LEAST_SCALE: Final = np.float32(1e-8)  # of what is always 0


def quantize_network(
    network: Network, flat: F32, samples: F32, name: str, input_quantization: Quantization | None = None
) -> Graph:
    """Return the int8 graph of a network: input [1, H, W, C], output the logits [1, classes].

    `flat` [P] are one node's weights, `samples` [n, d] real features to calibrate with. `input_quantization` is given
    where the features are integers of a known scale. Raises ModelError for a layer that int8 inference has not.
    """
    values = activations(network, flat[:, None], samples.T[:, :, None])
    return _Quantizer(network, flat, values, name).graph(input_quantization)


def of_bytes(scale: float, offset: float) -> Quantization | None:
    """Return the quantization that turns a byte feature b into the int8 b - 128, or None where there is none.

    A feature is b * scale + offset; its zero must be an integer.
    """
    zero = -128 - offset / scale if scale > 0 else 0.5
    if not -128 <= zero <= 127 or zero != int(zero):
        return None
    return Quantization(np.array([scale], np.float32), np.array([int(zero)], np.int32))


class _Quantizer:
    def __init__(self, network: Network, flat: F32, values: list[F32], name: str) -> None:
        self.name = name
        self.model = network.model
        self.values = values  # the input, then each layer's output
        self.parameters = {
            layer: (weights[..., 0], bias[:, 0]) for layer, (weights, bias) in network.parameters(flat[:, None]).items()
        }
        self.operators: list[Operator] = []
        self.outputs: list[Tensor] = []  # of each layer

    def graph(self, input_quantization: Quantization | None) -> Graph:
        shape = self.model.input
        first = Tensor("input", (1, *shape), DType.INT8, input_quantization or _affine(self.values[0]))
        x = first
        for number, layer in enumerate(self.model.layers):
            x = self._layer(number, layer, x)
            self.outputs.append(x)
        if len(x.shape) > 2:
            x = self._reshape(x, (1, self.model.classes), "logits")
        if x is first:
            raise ModelError("the model computes nothing", self.name, "give it a layer with weights")
        return Graph(self.name, self.operators, [first], [x])

    def _layer(self, number: int, layer: Layer, x: Tensor) -> Tensor:
        match layer.kind:
            case LayerKind.DENSE:
                return self._dense(number, layer, x)
            case LayerKind.CONV:
                return self._conv(number, layer, x)
            case LayerKind.POOL_MAX | LayerKind.POOL_AVERAGE:
                kind = "MAX_POOL_2D" if layer.kind is LayerKind.POOL_MAX else "AVERAGE_POOL_2D"
                options = PoolOptions(_padding(layer), layer.stride, layer.kernel)
                return self._append(kind, [x], self._output(number, x.quantization), options)
            case LayerKind.ADD:
                other = self.outputs[layer.source]
                return self._append("ADD", [x, other], self._output(number), FusedOptions(_activation(layer)))
            case LayerKind.FLATTEN:
                return self._reshape(x, (1, x.size), f"layer{number + 1}")
            case LayerKind.DROPOUT:
                return x  # outside of training
            case _:
                raise ModelError(
                    f"layer {number + 1} ({layer.kind.name.lower()}) depends on each input's own mean, "
                    "which int8 operators do not compute",
                    self.name,
                    "train without it to infer in int8",
                )

    def _dense(self, number: int, layer: Layer, x: Tensor) -> Tensor:
        weights, bias = self.parameters[number]
        if len(x.shape) > 2:
            x = self._reshape(x, (1, x.size), f"layer{number + 1}_input")
        inputs = self._weights(number, x, weights.reshape(layer.outputs, -1), bias, axis=0)
        y = self._output(number, shape=(1, layer.outputs))
        return self._append("FULLY_CONNECTED", inputs, y, DenseOptions(_activation(layer)))

    def _conv(self, number: int, layer: Layer, x: Tensor) -> Tensor:
        weights, bias = self.parameters[number]
        if len(x.shape) < 4:
            x = self._reshape(x, (1, *self.model.shapes[number]), f"layer{number + 1}_input")
        channels = self.model.shapes[number].channels
        options = ConvOptions(_padding(layer), layer.stride, (1, 1), activation=_activation(layer))
        if layer.groups == channels and channels > 1:  # [O, h, w, 1] -> [1, h, w, O]
            inputs = self._weights(number, x, np.moveaxis(weights, 0, -1).reshape(1, *layer.kernel, -1), bias, axis=3)
            options = ConvOptions(options.padding, layer.stride, (1, 1), layer.outputs // channels, options.activation)
            return self._append("DEPTHWISE_CONV_2D", inputs, self._output(number), options)
        inputs = self._weights(number, x, weights, bias, axis=0)
        return self._append("CONV_2D", inputs, self._output(number), options)

    def _weights(self, number: int, x: Tensor, weights: F32, bias: F32, axis: int) -> list[Tensor | None]:
        others = tuple(index for index in range(weights.ndim) if index != axis)
        scales = np.maximum(np.abs(weights).max(axis=others) / np.float32(127), _LEAST_SCALE).astype(np.float32)
        shape = [1] * weights.ndim
        shape[axis] = -1
        integers = np.clip(np.rint(weights / scales.reshape(shape)), -127, 127).astype(np.int8)
        zeros = np.zeros(len(scales), np.int32)
        both = (x.scale * scales).astype(np.float32)
        limits = np.iinfo(np.int32)
        biases = np.clip(np.rint(bias.astype(np.float64) / both), limits.min, limits.max).astype(np.int32)
        label = f"layer{number + 1}"
        return [
            x,
            Tensor(f"{label}_weights", integers.shape, DType.INT8, Quantization(scales, zeros, axis), integers),
            Tensor(f"{label}_bias", biases.shape, DType.INT32, Quantization(both, zeros, 0), biases),
        ]

    def _output(
        self, number: int, quantization: Quantization | None = None, shape: tuple[int, ...] | None = None
    ) -> Tensor:
        found = quantization or _affine(self.values[number + 1])
        size: Shape = self.model.shapes[number + 1]
        return Tensor(f"layer{number + 1}", shape or (1, *size), DType.INT8, found)

    def _reshape(self, x: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
        target = Tensor(f"{name}_shape", (len(shape),), DType.INT32, None, np.array(shape, np.int32))
        y = Tensor(name, shape, DType.INT8, x.quantization)
        return self._append("RESHAPE", [x, target], y, ReshapeOptions(shape))

    def _append(self, kind: str, inputs: list[Any], output: Tensor, options: Options) -> Tensor:
        self.operators.append(Operator(kind, list(inputs), [output], options, len(self.operators)))
        return output


def _affine(values: Array) -> Quantization:
    """Fit scale and zero point to the range of values, which always has 0 in it."""
    least, greatest = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = np.maximum(np.float32((greatest - least) / 255), _LEAST_SCALE)
    zero = int(np.clip(np.rint(-128 - least / float(scale)), -128, 127))
    return Quantization(np.array([scale], np.float32), np.array([zero], np.int32))


def _padding(layer: Layer) -> Padding:
    return Padding.SAME if layer.padding is constants.Padding.SAME else Padding.VALID


def _activation(layer: Layer) -> Activation:
    return Activation.RELU if layer.relu else Activation.NONE
