"""Load data sets, deal them to the nodes and put together what a run needs."""

from models.data import DATA_SETS, Dataset, load
from models.prepare import prepare

__all__ = ["DATA_SETS", "Dataset", "load", "prepare"]
