"""Define the layers of [model]."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from gossamer.experiment._section import Count16, Section
from gossamer.spec import rng
from gossamer.spec.constants import LAYERS_MAX, LayerKind, Padding
from gossamer.spec.nn import Layer, Shape


def _both(value: Any) -> Any:
    """Read one number as height and width."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    if not isinstance(value, tuple) or len(value) != 2:
        raise ValueError("give one number, or [height, width]")
    return value


Size = Annotated[tuple[Count16, Count16], BeforeValidator(_both)]  # height, width; one number is both
Activation = Literal["none", "relu"]
PaddingName = Literal["valid", "same"]
LayerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class _Layer(Section):
    name: LayerName | None = None

    def layer(self, size: Shape) -> Layer:
        """Return the layer for an input of this shape."""
        raise NotImplementedError


class DenseLayer(_Layer):
    """kind = "dense": reads any shape as one row."""

    kind: Literal["dense"]
    width: Count16
    activation: Activation = "none"

    def layer(self, size: Shape) -> Layer:
        return Layer(LayerKind.DENSE, relu=self.activation == "relu", outputs=self.width)


class _Window(_Layer):
    padding: PaddingName = "valid"

    def window(self, kernel: tuple[int, int], stride: tuple[int, int]) -> dict[str, Any]:
        """Return what all layers with windows have."""
        return {"kernel": kernel, "stride": stride, "padding": Padding[self.padding.upper()]}


class ConvLayer(_Window):
    """kind = "conv"."""

    kind: Literal["conv"]
    filters: Count16
    kernel: Size
    stride: Size = (1, 1)
    groups: Count16 = 1
    activation: Activation = "none"

    def layer(self, size: Shape) -> Layer:
        window = self.window(self.kernel, self.stride)
        relu = self.activation == "relu"
        return Layer(LayerKind.CONV, relu=relu, outputs=self.filters, groups=self.groups, **window)


class DepthwiseLayer(_Window):
    """kind = "depthwise": a convolution in which every channel makes `multiplier` channels of its own."""

    kind: Literal["depthwise"]
    kernel: Size
    multiplier: Count16 = 1
    stride: Size = (1, 1)
    activation: Activation = "none"

    def layer(self, size: Shape) -> Layer:
        window = self.window(self.kernel, self.stride)
        outputs = size.channels * self.multiplier
        relu = self.activation == "relu"
        return Layer(LayerKind.CONV, relu=relu, outputs=outputs, groups=size.channels, **window)


class GroupNormLayer(_Layer):
    """kind = "group_norm"."""

    kind: Literal["group_norm"]
    groups: Count16 = 1
    activation: Activation = "none"

    def layer(self, size: Shape) -> Layer:
        return Layer(LayerKind.NORM, relu=self.activation == "relu", groups=self.groups)


class _Pool(_Window):
    pools: ClassVar[LayerKind]
    size: Size
    stride: Size | None = None  # None: as the size

    def layer(self, size: Shape) -> Layer:
        return Layer(self.pools, **self.window(self.size, self.stride or self.size))


class MaxPoolLayer(_Pool):
    """kind = "max_pool"."""

    pools = LayerKind.POOL_MAX
    kind: Literal["max_pool"]


class AveragePoolLayer(_Pool):
    """kind = "average_pool": padding is not counted."""

    pools = LayerKind.POOL_AVERAGE
    kind: Literal["average_pool"]


class GlobalAveragePoolLayer(_Layer):
    """kind = "global_average_pool"."""

    kind: Literal["global_average_pool"]

    def layer(self, size: Shape) -> Layer:
        return Layer(LayerKind.POOL_AVERAGE, kernel=size[:2], stride=(1, 1))


class AddLayer(_Layer):
    """kind = "add": adds the output of the layer named `from`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    kind: Literal["add"]
    from_: Annotated[LayerName, Field(alias="from")]
    activation: Activation = "none"

    def layer(self, size: Shape) -> Layer:
        return Layer(LayerKind.ADD, relu=self.activation == "relu")


class FlattenLayer(_Layer):
    """kind = "flatten"; dense layers do it by themselves."""

    kind: Literal["flatten"]

    def layer(self, size: Shape) -> Layer:
        return Layer(LayerKind.FLATTEN)


class DropoutLayer(_Layer):
    """kind = "dropout"."""

    kind: Literal["dropout"]
    rate: Annotated[float, Field(ge=0, lt=1)]

    def layer(self, size: Shape) -> Layer:
        return Layer(LayerKind.DROPOUT, rate24=rng.probability24(self.rate))


LayerSection = (
    DenseLayer
    | ConvLayer
    | DepthwiseLayer
    | GroupNormLayer
    | MaxPoolLayer
    | AveragePoolLayer
    | GlobalAveragePoolLayer
    | AddLayer
    | FlattenLayer
    | DropoutLayer
)

Widths = Annotated[tuple[Count16, ...], Field(min_length=2, max_length=LAYERS_MAX + 1)]
Tables = Annotated[
    tuple[Annotated[LayerSection, Field(discriminator="kind")], ...], Field(min_length=1, max_length=LAYERS_MAX)
]


def _form(value: Any) -> str:
    is_table = isinstance(value, tuple) and any(isinstance(item, dict | Section) for item in value)
    return "<tables>" if is_table else "<widths>"


Layers = Annotated[
    Annotated[Widths, Tag("<widths>")] | Annotated[Tables, Tag("<tables>")],
    Discriminator(_form),
]


def _all(value: Any) -> Any:
    """Say what may be trained; pydantic would know of the word only."""
    if value != "all":
        raise ValueError("give 'all', how many of the last layers with parameters, or a list of layers' names")
    return value


def _trainable_form(value: Any) -> str:
    return {int: "<last>", tuple: "<names>"}.get(type(value), "<word>")


Trainable = Annotated[
    Annotated[Literal["all"], BeforeValidator(_all), Tag("<word>")]
    | Annotated[Count16, Tag("<last>")]
    | Annotated[tuple[LayerName, ...], Tag("<names>"), Field(min_length=1)],
    Discriminator(_trainable_form),
]
