"""Define, train and evaluate models, many nodes at once, in the exact order of SPEC.md 3."""

from gossamer.spec.nn._blocks import F32, I64, Bool, ordered_sum
from gossamer.spec.nn._faults import Fault, faults, faults_of_layer
from gossamer.spec.nn._model import Block, Layer, Model, Shape
from gossamer.spec.nn._train import Dropout, Network, activations, evaluate, forward, gradient, softmax_loss

__all__ = [
    "F32",
    "I64",
    "Block",
    "Bool",
    "Dropout",
    "Fault",
    "Layer",
    "Model",
    "Network",
    "Shape",
    "activations",
    "evaluate",
    "faults",
    "faults_of_layer",
    "forward",
    "gradient",
    "ordered_sum",
    "softmax_loss",
]
