"""Read an experiment file into frozen, typed sections."""

from gossamer.experiment._faults import Fault
from gossamer.experiment._load import load_experiment, place_problems
from gossamer.experiment._model import Experiment

__all__ = ["Experiment", "Fault", "load_experiment", "place_problems"]
