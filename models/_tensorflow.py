"""Load TensorFlow where it is needed, and nowhere else."""

from __future__ import annotations

import os
from typing import Any

from gossamer.errors import GossamerError


def tensorflow() -> Any:
    """Return the module, quiet and set to give the same numbers every time on one kind of processor.

    Raises: GossamerError if it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # another device adds in another order
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # and so does it
    try:
        import tensorflow as tf
    except ImportError as error:
        raise GossamerError("TensorFlow is not installed", mend="pip install 'gossamer-twin[tf]'") from error
    tf.config.experimental.enable_op_determinism()
    return tf


def seed(tf: Any, value: int) -> None:
    """Start all of its streams of random numbers anew."""
    tf.keras.backend.clear_session()  # names of layers go into files; without this they count on
    tf.keras.utils.set_random_seed(value)
