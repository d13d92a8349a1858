"""Build the corpus of converted models: single operators and networks, drawn from a seed.

From one seed the same models come out, except that TensorFlow's converter computes the parts of a split now in int8,
now in floats, by chance.

Run in an environment with TensorFlow: python -m tests.tflite.tf_corpus [--seed N] [--count N] [--out FILE.zip]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from codegen.ir import ModelError
from codegen.read import parse_model
from tests.tflite._tf_graphs import GRAPHS
from tests.tflite._tf_refused import REFUSED
from tests.tflite._tf_singles import SINGLES, Case, Draw

CORPUS = Path(__file__).with_name("corpus_tf.zip")
_KINDS = [kind for table in (SINGLES, GRAPHS) for kind, times in table.items() for _ in range(times)]
_CALIBRATION = 16
_DATE = (1980, 1, 1, 0, 0, 0)  # the least that zip knows: files must not tell when they were made


def main() -> None:
    """Write the zip; what TensorFlow does not convert is named and left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="how many models [default: all, and those that must be refused]")
    parser.add_argument("--only", help="kinds whose name contains this")
    parser.add_argument("--out", type=Path, default=CORPUS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    numbers = [number for number, kind in enumerate(_KINDS) if (options.only or "") in kind.__name__]
    if options.count:
        numbers = sorted(np.random.default_rng(options.seed).choice(numbers, options.count, replace=False).tolist())
    names = [str(number) for number in numbers]
    if not options.count and not options.only:
        names += REFUSED
    with tempfile.TemporaryDirectory(prefix="gossamer-corpus-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        shares = [names[start :: options.jobs] for start in range(options.jobs)]
        list(pool.map(lambda share: _convert_all(options.seed, share, Path(folder)), shares))
        models = {path.stem: path.read_bytes() for path in sorted(Path(folder).glob("*.tflite"))}
        for path in sorted(Path(folder).glob("*.failed")):
            print(f"{path.stem}: not converted: {path.read_text('utf-8')}")
    models = {name: content for name, content in models.items() if _is_readable(name, content)}
    with zipfile.ZipFile(options.out, "w") as corpus:
        for name, content in models.items():
            entry = zipfile.ZipInfo(f"{name}.tflite", _DATE)
            corpus.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    print(f"{options.out}: {len(models)} of {len(names)} models, {options.out.stat().st_size:,} bytes")


def _convert_all(seed: int, names: Sequence[str], folder: Path) -> None:
    """Convert in a process that may die of it: then the model it died of is left out, and another one goes on."""
    waiting = list(names)
    while waiting:
        command = [sys.executable, "-m", "tests.tflite.tf_corpus", "convert", str(seed), str(folder), *waiting]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if ended.returncode > 0:
            sys.exit(ended.stderr.decode("utf-8", "replace"))
        begun = [name for name in waiting if (folder / f"{name}.begun").exists()]
        if ended.returncode < 0:
            (folder / f"{begun[-1]}.failed").write_text(f"TensorFlow died of signal {-ended.returncode}", "utf-8")
        waiting = waiting[len(begun) :]


def _is_readable(name: str, content: bytes) -> bool:
    """Tell whether there is a model in a file; of a function that changes nothing TensorFlow makes none."""
    if name.startswith("refused_"):
        return True
    try:
        parse_model(content, name)
    except ModelError as error:
        print(f"{name}: left out: {error}")
        return False
    return True


def convert_here(seed_: int, folder: Path, names: Sequence[str]) -> None:
    """Convert models into files of a folder; this is what the child processes do."""
    from models._tensorflow import seed, tensorflow

    tf = tensorflow()
    for name in names:
        (folder / f"{name}.begun").touch()
        number = int(name) if name.isdigit() else 0
        seed(tf, (seed_ * 1000 + number) % (1 << 32))
        try:
            if name in REFUSED:
                stem, content = f"refused_{name}", REFUSED[name](tf)
            else:
                draw = np.random.default_rng([seed_, number])
                case = _KINDS[number](tf, draw)
                stem, content = f"{number:03}_{case.name}", convert(tf, case, draw)
        except Exception as error:  # the converter raises whatever it likes
            (folder / f"{name}_{_kind(name)}.failed").write_text(_told(error), "utf-8")
        else:
            (folder / f"{stem}.part").write_bytes(content)
            (folder / f"{stem}.part").rename(folder / f"{stem}.tflite")


def _kind(name: str) -> str:
    return "refused" if name in REFUSED else _KINDS[int(name)].__name__


def _told(error: Exception) -> str:
    text = re.sub(r"\s+", " ", str(error)) or type(error).__name__
    return text if len(text) < 300 else f"{text[:100]} ... {text[-190:]}"


def convert(tf: Any, case: Case, draw: Draw) -> bytes:
    """Convert to int8; inputs are calibrated with uniform numbers of the case's ranges."""
    if case.is_model:
        converter = tf.lite.TFLiteConverter.from_keras_model(case.function)
    else:
        signature = [tf.TensorSpec(shape, tf.float32) for shape in case.shapes]
        function = tf.function(case.function, input_signature=signature, autograph=False)
        converter = tf.lite.TFLiteConverter.from_concrete_functions(
            [function.get_concrete_function()], case.holder or function
        )
    samples: list[Any] = [
        [_sample(case, place, draw) for place in range(len(case.shapes))] for _ in range(_CALIBRATION)
    ]
    if case.is_model and len(case.shapes) > 1:  # by name: their order may be another in the file
        names = [tensor.name for tensor in case.function.inputs]
        samples = [dict(zip(names, sample, strict=True)) for sample in samples]
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter(samples)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if not case.float_ends:
        converter.inference_input_type = converter.inference_output_type = tf.int8
    content: bytes = converter.convert()
    return content


def _sample(case: Case, place: int, draw: Draw) -> Any:
    low, high = case.ranges[min(place, len(case.ranges) - 1)]
    return draw.uniform(low, high, [size or 1 for size in case.shapes[place]]).astype(np.float32)


if __name__ == "__main__":
    if sys.argv[1:2] == ["convert"]:
        convert_here(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        main()
