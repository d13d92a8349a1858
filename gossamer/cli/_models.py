"""Do `gossamer models`."""

from __future__ import annotations

from pathlib import Path

from gossamer.cli._codegen import ModelRequest, export_model


def list_models() -> None:
    """Print the models of the zoo."""
    from models import zoo

    width = max(map(len, zoo.names()))
    for name in zoo.names():
        entry = zoo.get(name)
        print(f"{name:<{width}}  {entry.tflite.stat().st_size:>9,} bytes  {entry.title}")


def train_model(name: str, out: Path) -> None:
    """Train a model of the zoo with TensorFlow."""
    from models.train import train

    print(f"wrote {train(name, out)}")


def quantize_model(name: str, out: Path) -> None:
    """Turn a trained model into an int8 .tflite file with TensorFlow."""
    from models.quantize import quantize

    print(f"wrote {quantize(name, out)}")


def export_zoo_model(name: str, out: Path, check: bool) -> bool:
    """Write a model of the zoo as C; return False when a check found a difference."""
    from models import zoo

    return export_model(ModelRequest(model=zoo.get(name).tflite, out=out, name=name, check=check))
