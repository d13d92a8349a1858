"""Find what makes the layers of a model unfit (SPEC.md 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gossamer.spec.constants import CLASSES_MAX, ELEMENTS_MAX, LAYERS_MAX, PARAMETERS_MAX, LayerKind, Padding
from gossamer.spec.nn._model import WINDOWED, Layer, Model, Shape

_SIZE_MAX: Final = 65535
_RATE_END: Final = 1 << 24
_AXES: Final = ("height", "width")

_WINDOW: Final = ("kernel_height", "kernel_width", "stride_height", "stride_width", "padding")
_OPTIONS: Final[dict[LayerKind, tuple[str, ...]]] = {
    LayerKind.DENSE: ("relu", "outputs", "frozen"),
    LayerKind.CONV: ("relu", "outputs", *_WINDOW, "groups", "frozen"),
    LayerKind.NORM: ("relu", "groups", "frozen"),
    LayerKind.POOL_MAX: _WINDOW,
    LayerKind.POOL_AVERAGE: _WINDOW,
    LayerKind.ADD: ("relu", "source"),
    LayerKind.FLATTEN: (),
    LayerKind.DROPOUT: ("rate24",),
}


class Fault(NamedTuple):
    """Say which word is wrong: of layer `layer`, or where that is None of the whole model; and why, and the mend."""

    layer: int | None
    word: str
    what: str
    mend: str


def faults(size: Shape, layers: Sequence[Layer]) -> Iterator[Fault]:
    """Yield what is wrong; layers behind one whose output is unknown are passed over."""
    for axis, value in zip((*_AXES, "channels"), size, strict=True):
        if not 1 <= value <= _SIZE_MAX:
            yield Fault(None, f"input_{axis}", f"is {value}", f"allowed 1 .. {_SIZE_MAX}")
            return
    if size.numbers > ELEMENTS_MAX:
        yield Fault(None, "input_height", f"the input has {size.numbers:,} numbers", f"allowed up to {ELEMENTS_MAX:,}")
        return
    if not 1 <= len(layers) <= LAYERS_MAX:
        yield Fault(None, "layers", f"there are {len(layers)} layers", f"allowed 1 .. {LAYERS_MAX}")
        return
    shapes = [size]
    for number, layer in enumerate(layers):
        found = list(faults_of_layer(number, layer, shapes))
        yield from found
        if found:
            return
        shapes.append(layer.output(shapes[-1]))
    yield from _of_model(Model(size, tuple(layers)))


def faults_of_layer(number: int, layer: Layer, shapes: Sequence[Shape]) -> Iterator[Fault]:
    """Yield what is wrong with a layer; `shapes` are that of the input and of the outputs of the layers before."""
    for fault in _of_layer(number, layer, shapes):
        yield Fault(number, *fault)


_Wrong = tuple[str, str, str]


def _of_layer(number: int, layer: Layer, shapes: Sequence[Shape]) -> Iterator[_Wrong]:
    kind, size = layer.kind, shapes[-1]
    for word, value in layer.words().items():
        if value and word != "kind" and word not in _OPTIONS[kind]:
            yield word, f"is {value}, but {kind.name} has no such option", "allowed 0"
    if kind in (LayerKind.DENSE, LayerKind.CONV) and not 1 <= layer.outputs <= _SIZE_MAX:
        yield "outputs", f"is {layer.outputs}", f"allowed 1 .. {_SIZE_MAX}"
        return
    if kind in WINDOWED:
        found = list(_of_window(layer, size))
        yield from found
        if found:
            return
    if kind is LayerKind.CONV and not _divides(layer.groups, size.channels, layer.outputs):
        mend = "it must divide both"
        yield "groups", f"is {layer.groups} with {size.channels} channels in and {layer.outputs} out", mend
    if kind is LayerKind.NORM and not _divides(layer.groups, size.channels):
        yield "groups", f"is {layer.groups} with {size.channels} channels", "it must divide them"
    if kind is LayerKind.ADD:
        yield from _of_source(number, layer, shapes)
    if kind is LayerKind.DROPOUT and not 0 <= layer.rate24 < _RATE_END:
        yield "rate24", f"is {layer.rate24}", f"allowed 0 .. {_RATE_END - 1}"
    out = layer.output(size)
    if out.numbers > ELEMENTS_MAX:
        word = "outputs" if layer.outputs else "kind"
        yield word, f"makes an output of {out}, {out.numbers:,} numbers", f"allowed up to {ELEMENTS_MAX:,}"


def _of_window(layer: Layer, size: Shape) -> Iterator[_Wrong]:
    for what, values in (("kernel", layer.kernel), ("stride", layer.stride)):
        for axis, value in zip(_AXES, values, strict=True):
            if not 1 <= value <= _SIZE_MAX:
                yield f"{what}_{axis}", f"is {value}", f"allowed 1 .. {_SIZE_MAX}"
                return
    if layer.padding is Padding.VALID:
        for axis, k, n in zip(_AXES, layer.kernel, size[:2], strict=True):
            if k > n:
                yield f"kernel_{axis}", f"a window of {k} does not fit an input of {size}", "lower it, or pad 'same'"


def _of_source(number: int, layer: Layer, shapes: Sequence[Shape]) -> Iterator[_Wrong]:
    if not 0 <= layer.source <= number - 2:
        yield "source", "is not an earlier layer", "choose one that stands two or more places before"
    elif shapes[layer.source + 1] != shapes[-1]:
        what = f"adds {shapes[layer.source + 1]} to {shapes[-1]}"
        yield "source", what, "choose a layer with an output of the same shape"


def _of_model(model: Model) -> Iterator[Fault]:
    count = sum(block.size for block in model.blocks)
    if count > PARAMETERS_MAX:
        yield Fault(None, "layers", f"make {count:,} parameters", f"allowed up to {PARAMETERS_MAX:,}")
    if not model.trainable:
        yield Fault(None, "layers", "have nothing to train", "leave a layer with parameters that is not frozen")
    if model.classes > CLASSES_MAX:
        mend = f"allowed up to {CLASSES_MAX}: a label is a byte"
        yield Fault(None, "layers", f"end in {model.classes} classes", mend)


def _divides(groups: int, *counts: int) -> bool:
    return groups >= 1 and all(count % groups == 0 for count in counts)
