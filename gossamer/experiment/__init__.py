"""Read an experiment file into frozen, typed sections."""
from gossamer.experiment._model import Experiment, load_experiment

__all__ = ["Experiment", "load_experiment"]
