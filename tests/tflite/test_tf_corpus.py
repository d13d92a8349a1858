"""Every model that TensorFlow converted: the C code against tflite-micro, element by element.

`corpus_tf.zip` is made by `python -m tests.tflite.tf_corpus` with TensorFlow; GOSSAMER_TF_CORPUS may name another.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen import host, oracle, shapes
from codegen.check import random_inputs
from codegen.ir import ModelError
from codegen.program import Program, Settings, compile_graph
from codegen.read import parse_model
from codegen.write import write
from gossamer.errors import GossamerError

Array = NDArray[Any]
CORPUS = Path(os.environ.get("GOSSAMER_TF_CORPUS", Path(__file__).with_name("corpus_tf.zip")))
SAMPLES = 12
SECOND_OPINIONS = 60  # models shown to LiteRT's reference kernels too
TOGETHER = 24  # models compiled into one library

_UNSUPPORTED = "this operator is not supported"
# What must be refused, and what the message says.
REFUSALS = {
    "refused_batch_matmul": f"(BATCH_MATMUL) Identity: {_UNSUPPORTED}",
    "refused_conv_3d": f"(CONV_3D) Identity: {_UNSUPPORTED}",
    "refused_cumsum": f"(CUMSUM) Identity: {_UNSUPPORTED}",
    "refused_custom": f"(CUSTOM Betainc) Identity: {_UNSUPPORTED}",
    "refused_top_k": f"(TOPK_V2) Identity: {_UNSUPPORTED}",
    "refused_dynamic_range": "is float32, not int8; quantize the whole model to int8",
    "refused_float": "is float32, not int8; quantize the whole model to int8",
    "refused_open_rows": "the input x leaves more open than the batch: 1x?x3",
    "refused_int16": "is int16, not int8; quantize the whole model to int8",
    "refused_uint8_ends": "is uint8, not float32 or int8; feed the model int8 or float32",
    "refused_while": "3 subgraphs, not one; control flow and several signatures are not supported",
}
# Operators of converted models that are refused wherever they stand.
REFUSED_KINDS = ("RSQRT",)
UNRUN_KINDS = {"TILE"}  # that tflite-micro does not know
# Of these LiteRT has newer versions, other roundings or other padding than tflite-micro.
OTHERWISE_IN_LITERT = {"DEPTH_TO_SPACE", "RELU6", "SPACE_TO_BATCH_ND", "SUM", "UNIDIRECTIONAL_SEQUENCE_LSTM"}
EXPECTED_KINDS = {
    "ABS", "ADD", "ARG_MAX", "AVERAGE_POOL_2D", "BATCH_TO_SPACE_ND", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D",
    "DEPTH_TO_SPACE", "DEQUANTIZE", "FULLY_CONNECTED", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MAXIMUM",
    "MAX_POOL_2D", "MEAN", "MINIMUM", "MIRROR_PAD", "MUL", "NEG", "PACK", "PAD", "PADV2", "PRELU", "QUANTIZE",
    "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SLICE",
    "SOFTMAX", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUARE", "STRIDED_SLICE", "SUB", "SUM",
    "TANH", "TRANSPOSE", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNPACK",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Compared:
    """Hold both sides' outputs of one model, invocation by invocation."""

    ours: list[list[Array]]
    theirs: list[list[Array]]
    is_micro: bool = True  # theirs are tflite-micro's, not LiteRT's

    @property
    def elements(self) -> int:
        return sum(array.size for outputs in self.ours for array in outputs)

    @property
    def is_equal(self) -> bool:
        """Compare bits; a dimension of 1 more or less is no difference."""
        return all(
            mine.dtype == judged.dtype and mine.tobytes() == judged.tobytes()
            for outputs, answers in zip(self.ours, self.theirs, strict=True)
            for mine, judged in zip(outputs, answers, strict=True)
        )


@cache
def corpus() -> dict[str, bytes]:
    with zipfile.ZipFile(CORPUS) as stored:
        return {Path(name).stem: stored.read(name) for name in sorted(stored.namelist())}


@cache
def exported() -> dict[str, Program | GossamerError]:
    """Compile every model; what is refused stands in place of the program."""
    return {name: _exported(name, content) for name, content in corpus().items()}


def _exported(name: str, content: bytes) -> Program | GossamerError:
    try:
        return compile_graph(parse_model(content, f"{name}.tflite"), Settings(name=f"m_{name}"))
    except ModelError as error:
        return error


def programs() -> dict[str, Program]:
    return {name: program for name, program in exported().items() if isinstance(program, Program)}


@cache
def is_misread(name: str) -> bool:
    """Tell whether tflite-micro takes the shapes of a file in which they are wrong.

    With an open batch the file has 1 where SPACE_TO_BATCH_ND makes several; it never infers shapes, and computes
    something else than LiteRT, which does.
    """
    graph = parse_model(corpus()[name], name)
    is_open = any(tensor.dynamic for tensor in graph.tensors())
    return is_open and any(operator.kind == "SPACE_TO_BATCH_ND" for operator in graph.operators)


def judged(name: str) -> bytes:
    """Return the file for tflite-micro: as converted, except where it would misread the shapes."""
    return rewritten(name) if is_misread(name) else corpus()[name]


def rewritten(name: str) -> bytes:
    """Write a model again, with the shapes of batch 1 and the first version of every operator."""
    return write(shapes.infer(parse_model(corpus()[name], name)))


def inputs_of(name: str) -> list[list[Array]]:
    return random_inputs(programs()[name].graph, SAMPLES, zlib.crc32(name.encode()))


@cache
def compared() -> dict[str, Compared]:
    """Run both sides of every model that is exported."""
    names = list(programs())
    batches = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
    with ThreadPoolExecutor(2) as pool:  # the work is done by other processes
        asked = pool.submit(oracle.run_many, [(judged(name), inputs_of(name)) for name in names])
        built = list(pool.map(lambda batch: host.build([programs()[name] for name in batch]), batches))
        answers = asked.result()
    models = [model for batch in built for model in batch]
    return dict(_compared(names, models, answers))


def _compared(names: list[str], models: list[host.HostModel], answers: list[Any]) -> Iterator[tuple[str, Compared]]:
    for name, model, answer in zip(names, models, answers, strict=True):
        ours = [model.invoke(given) for given in inputs_of(name)]
        if isinstance(answer, oracle.Answer):
            yield name, Compared(ours, answer.outputs)
        else:
            assert kinds_of(name) & UNRUN_KINDS, f"{name}: {answer}"
            yield name, Compared(ours, litert_of(name), is_micro=False)


def test_only_what_is_listed_or_kills_tflite_micro_is_refused() -> None:
    refused = {name: str(error) for name, error in exported().items() if isinstance(error, GossamerError)}
    for name in REFUSALS.keys() & corpus().keys():
        assert REFUSALS[name] in refused.pop(name)
    known = [f"({kind}) " for kind in REFUSED_KINDS]
    left = {name: text for name, text in refused.items() if not any(kind in text for kind in known)}
    graphs = {name: shapes.infer(parse_model(corpus()[name], name)) for name in left}
    answers = oracle.run_many([(write(graph), random_inputs(graph, SAMPLES)) for graph in graphs.values()])
    died = {name for name, answer in zip(left, answers, strict=True) if isinstance(answer, oracle.OracleError)}
    assert {name: text for name, text in left.items() if name not in died} == {}  # scales that it ends the process for


def test_equal_to_tflite_micro(capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for name, model in compared().items() if not model.is_equal] == []
    found = [model for model in compared().values() if model.is_micro]
    elements = sum(model.elements for model in found)
    others = len(compared()) - len(found)
    with capsys.disabled():
        print(f"\n[{CORPUS.name}: {len(found)} models, {elements:,} elements equal to tflite-micro's", end="")
        print(f"; {others} that it does not run, to LiteRT's]" if others else "]", end=" ")


def test_litert_has_the_same_opinion(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert")
    names = [name for name in compared() if not OTHERWISE_IN_LITERT & kinds_of(name)]
    chosen = sorted({*names[:: max(1, len(names) // SECOND_OPINIONS)], *filter(is_misread, names)})
    parted = [name for name in chosen if not Compared(compared()[name].ours, litert_of(name)).is_equal]
    assert parted == []
    with capsys.disabled():
        print(f"\n[{len(chosen)} of them equal to LiteRT's reference kernels too]", end=" ")


def kinds_of(name: str) -> set[str]:
    return {operator.kind for operator in parse_model(corpus()[name], name).operators}


def litert_of(name: str) -> list[list[Array]]:
    """Run LiteRT's reference kernels, on inputs whose open batch is 1."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=rewritten(name) if kinds_of(name) & UNRUN_KINDS else corpus()[name],
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    inputs = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    found = []
    for given in inputs_of(name):
        for place, value in zip(inputs, given, strict=True):
            interpreter.set_tensor(place, value)
        interpreter.invoke()
        found.append([np.array(interpreter.get_tensor(place)) for place in outputs])
    return found


def test_the_corpus_is_rich() -> None:
    """At least 320 models that run, and in them every operator that a converter emits of those we export."""
    if CORPUS.name != "corpus_tf.zip":
        pytest.skip("a corpus of another seed may have anything in it")
    assert len(programs()) >= 320
    kinds = set().union(*(kinds_of(name) for name in programs()))
    assert sorted(EXPECTED_KINDS - kinds) == []
    assert CORPUS.stat().st_size < 1_500_000


def test_outputs_are_not_all_the_same() -> None:
    """An output that never changed would compare equal to anything."""
    dull = [name for name, model in compared().items() if len({outputs[0].tobytes() for outputs in model.ours}) < 4]
    assert len(dull) < len(compared()) / 20
