"""Turn [model] and train.trainable into the model of SPEC.md 3, or say what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from gossamer.experiment._layers import AddLayer, LayerSection
from gossamer.experiment._sections import ModelSection, TrainSection
from gossamer.spec.nn import Fault, Layer, Model, Shape, faults, faults_of_layer

Finding = tuple[tuple[str | int, ...], str, str | None]

# How the words of SPEC.md 3.1 are called in the file, where it is not the same.
_WINDOW: Final = {"kernel_height": "kernel", "kernel_width": "kernel"}
_POOL: Final = {"kernel_height": "size", "kernel_width": "size"}
_KEYS: Final[dict[str, dict[str, str]]] = {
    "dense": {"outputs": "width"},
    "conv": {"outputs": "filters", **_WINDOW},
    "depthwise": {"outputs": "multiplier", **_WINDOW},
    "max_pool": _POOL,
    "average_pool": _POOL,
}


class MisfitError(Exception):
    """Carry what does not fit."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__()
        self.findings = findings


def network(model: ModelSection, train: TrainSection) -> Model:
    """Return the model with its frozen layers marked; raises MisfitError."""
    tables = not isinstance(model.layers[0], int)
    if tables and model.input is None:
        raise MisfitError((("model", "input"), "is missing", "add it to [model]: [height, width, channels]"))
    if not tables and model.input is not None:
        mend = "remove it: widths begin with the input's; or describe each layer by a table"
        raise MisfitError((("model", "input"), "goes with tables only", mend))
    if model.input is None:
        built = Model.dense(tuple(width for width in model.layers if isinstance(width, int)))
    else:
        sections = [layer for layer in model.layers if not isinstance(layer, int)]
        built = Model(Shape(*model.input), tuple(_layers(sections, Shape(*model.input))))
    found = [_placed(fault, model) for fault in faults(built.input, built.layers)]
    if found:
        raise MisfitError(*found)
    frozen = _frozen(built, model, train)
    layers = (replace(layer, frozen=number in frozen) for number, layer in enumerate(built.layers))
    return Model(built.input, tuple(layers))


def _layers(sections: Sequence[LayerSection], size: Shape) -> Iterator[Layer]:
    """Give the layers up to the first that does not fit; `faults` finds it again."""
    places: dict[str, int] = {}
    shapes = [size]
    for number, section in enumerate(sections):
        layer = section.layer(shapes[-1])
        if isinstance(section, AddLayer):
            if section.from_ not in places:
                known = f"earlier names: {', '.join(places)}" if places else "give an earlier layer a name"
                raise MisfitError(
                    (("model", "layers", number, "from"), f"no earlier layer is '{section.from_}'", known)
                )
            layer = replace(layer, source=places[section.from_])
        if section.name is not None:
            if section.name in places:
                what = f"'{section.name}' is the name of model.layers[{places[section.name]}] already"
                raise MisfitError((("model", "layers", number, "name"), what, "names must differ"))
            places[section.name] = number
        yield layer
        if any(faults_of_layer(number, layer, shapes)):
            return
        shapes.append(layer.output(shapes[-1]))


def _placed(fault: Fault, model: ModelSection) -> Finding:
    """Say a fault with the keys of the file."""
    if fault.layer is None and fault.word == "layers":
        key: tuple[str | int, ...] = ("model", "layers")
    elif fault.layer is None:
        key = ("model", "input") if model.input is not None else ("model", "layers", 0)
    elif model.input is None:
        key = ("model", "layers", fault.layer + 1)
    else:
        section = model.layers[fault.layer]
        kind = "" if isinstance(section, int) else section.kind
        word = _KEYS.get(kind, {}).get(fault.word, fault.word)
        key = ("model", "layers", fault.layer, "from" if word == "source" else word)
    return key, fault.what, fault.mend


def _frozen(built: Model, model: ModelSection, train: TrainSection) -> set[int]:
    """Return the layers that do not train."""
    owners = [block.layer for block in built.blocks]
    key = ("train", "trainable")
    match train.trainable:
        case int(count):
            if count > len(owners):
                what = f"is {count}, but only {len(owners)} layers have parameters"
                raise MisfitError((key, what, f"allowed 1 .. {len(owners)}, or 'all'"))
            return set(owners[:-count])
        case tuple(names):
            named = {
                layer.name: number
                for number, layer in enumerate(model.layers)
                if not isinstance(layer, int) and layer.name is not None and number in owners
            }
            for place, name in enumerate(names):
                if name not in named:
                    known = (
                        f"allowed {', '.join(named)}" if named else "give layers a name, or say how many of the last"
                    )
                    raise MisfitError(((*key, place), f"no layer with parameters is named '{name}'", known))
            return set(owners) - {named[name] for name in names}
        case _:
            return set()
