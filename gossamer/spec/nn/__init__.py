"""Define, train and evaluate models, many nodes at once, in the exact order of SPEC.md 3."""

from gossamer.spec.nn._faults import Fault, faults
from gossamer.spec.nn._model import Block, Layer, Model, Shape
from gossamer.spec.nn._train import F32, I64, Bool, evaluate, forward, gradient, ordered_sum, softmax_loss, update

__all__ = [
    "F32",
    "I64",
    "Block",
    "Bool",
    "Fault",
    "Layer",
    "Model",
    "Shape",
    "evaluate",
    "faults",
    "forward",
    "gradient",
    "ordered_sum",
    "softmax_loss",
    "update",
]
