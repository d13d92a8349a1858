"""The C that is written: it compiles without a warning, depends on nothing but its input, and stays in its memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen import check as checking
from codegen import host
from codegen.accuracy import read_samples
from codegen.emit import emit
from codegen.export import check_name, export, write_all
from codegen.ir import (
    Activation,
    Array,
    ConvOptions,
    FusedOptions,
    Graph,
    ModelError,
    Operator,
    Padding,
    ReshapeOptions,
    Tensor,
)
from codegen.kernels import kernel_sources
from codegen.program import Settings, compile_graph
from codegen.storage import Region
from codegen.write import write
from gossamer.cli import main
from gossamer.native import CHECKED, FIRMWARE, core_sources, executable
from tests.tflite.single import int8, int32, of_operators

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", "-fno-pie")
DRAW = np.random.default_rng(1)


def conv(name: str, x: Tensor, channels: int, scale: float = 0.05) -> Operator:
    filters = int8(
        f"{name}_w",
        (channels, 3, 3, x.shape[3]),
        [0.01] * channels,
        0,
        DRAW.integers(-127, 128, (channels, 3, 3, x.shape[3])),
    )
    bias = int32(f"{name}_b", DRAW.integers(-999, 999, channels), [float(x.scale) * 0.01] * channels)
    y = int8(name, (*x.shape[:3], channels), scale, -3)
    return Operator("CONV_2D", [x, filters, bias], [y], ConvOptions(Padding.SAME, activation=Activation.RELU))


def residual(channels: int = 4, size: int = 9) -> Graph:
    """Make a small graph with a branch: relu(conv(conv(x)) + conv(x))."""
    x = int8("x", (1, size, size, 3), 0.1, 5)
    first = conv("first", x, channels)
    second = conv("second", first.output, channels)
    total = int8("total", first.output.shape, 0.1, 7)
    add = Operator("ADD", [second.output, first.output], [total], FusedOptions(Activation.RELU))
    return of_operators([first, second, add], [total])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "residual.tflite"
    path.write_bytes(write(residual()))
    return path


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_find_nothing_to_warn_of(model: Path, tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    export(model, tmp_path / "out", Settings(name="net"), with_core=True)
    for path in sorted((tmp_path / "out").glob("*.c")):  # with_core: nothing else is needed
        subprocess.run([compiler, *WARNINGS, "-O2", "-c", path, "-o", tmp_path / "o.o"], check=True)


def test_cpp_may_call_it(tmp_path: Path) -> None:
    """A model that is only a table needs no arena; an array of the arena's size is right all the same."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    y = int8("y", (1, 4), 0.05)
    program = compile_graph(of_operators([Operator("RELU", [int8("x", (1, 4), 0.05)], [y])], [y]))
    assert program.arena.peak_bytes == 0
    for name, text in emit(program).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "main.cpp").write_text(
        """#include "model.h"
alignas(16) static uint8_t arena[MODEL_ARENA_BYTES];
int main() {
    const int8_t in[MODEL_IN_COUNT] = {-2, -1, 0, 3};
    int8_t out[MODEL_OUT_COUNT];
    return model_invoke(in, out, arena) || out[0] || out[1] || out[2] || out[3] != 3;
}
"""
    )
    core = FIRMWARE / "core"
    sources = [tmp_path / "model.c", core / "gs_q8_map.c"]
    for source in sources:
        subprocess.run(["gcc", f"-I{core}", "-c", source, "-o", tmp_path / f"{source.stem}.o"], check=True)
    subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", tmp_path / "main.cpp"]
        + [tmp_path / f"{source.stem}.o" for source in sources]
        + ["-o", tmp_path / "main"],
        check=True,
    )
    subprocess.run([tmp_path / "main"], check=True)


def test_the_same_model_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export(model, tmp_path / name, Settings())
    for name in ("model.c", "model.h"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    text = (tmp_path / "a" / "model.c").read_text()
    assert "residual.tflite, SHA-256 " in text and "gossamer codegen residual.tflite -o DIR --name model" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_another_core_is_refused_by_the_compiler(model: Path, tmp_path: Path) -> None:
    export(model, tmp_path, Settings(), with_core=True)
    header = tmp_path / "gs_q8.h"
    header.write_text(header.read_text().replace("#define GS_Q8_VERSION 1", "#define GS_Q8_VERSION 999"))
    done = subprocess.run(["cc", "-c", tmp_path / "model.c", "-o", tmp_path / "o.o"], capture_output=True, text=True)
    assert done.returncode != 0 and "made for version 1 of the int8 kernels: run gossamer codegen again" in done.stderr


def test_it_uses_nothing_but_the_core(model: Path, tmp_path: Path) -> None:
    export(model, tmp_path, Settings())
    subprocess.run(
        ["cc", "-O1", "-fno-pie", f"-I{FIRMWARE / 'core'}", "-c", tmp_path / "model.c", "-o", tmp_path / "o.o"],
        check=True,
    )
    symbols = subprocess.run(["nm", tmp_path / "o.o"], check=True, capture_output=True, text=True).stdout.split("\n")
    wanted = {line.split()[-1] for line in symbols if " U " in line}
    assert wanted == {"gs_q8_conv", "gs_q8_add"} | (wanted & {"_GLOBAL_OFFSET_TABLE_"})
    assert not [line for line in symbols if line[17:18] in tuple("BbDdC")], "mutable globals"


def test_buffers_of_the_caller_need_no_alignment(tmp_path: Path) -> None:
    """The undefined-behaviour sanitizer looks on; in and out stand at odd addresses, the arena is exactly as large."""
    program = compile_graph(residual())
    for name, text in emit(program).items():
        (tmp_path / name).write_text(text)
    given, expected = np.arange(243, dtype=np.int8), host.build([program])[0]
    wanted = expected.invoke([given.reshape(1, 9, 9, 3)])[0].ravel()
    (tmp_path / "main.c").write_text(f"""
#include <stdlib.h>
#include <string.h>
#include "model.h"
static int8_t in[MODEL_IN_COUNT + 1], out[MODEL_OUT_COUNT + 1];
static const int8_t wanted[] = {{{", ".join(map(str, wanted.tolist()))}}};
int main(void)
{{
    int8_t *arena = aligned_alloc(16, MODEL_ARENA_BYTES);
    for (unsigned i = 0; i < MODEL_IN_COUNT; ++i) {{
        in[1 + i] = (int8_t)(i < 128 ? (int)i : (int)i - 256);
    }}
    if (model_invoke(in + 1, out + 1, NULL) != -1 || model_invoke(in + 1, out + 1, arena + 8) != -1) {{
        return 2;
    }}
    const int failed = model_invoke(in + 1, out + 1, arena) || memcmp(out + 1, wanted, sizeof wanted);
    free(arena);
    return failed;
}}
""")
    sources = sorted((FIRMWARE / "core").glob("gs_q8_*.c"))
    command = ["cc", *CHECKED, f"-I{FIRMWARE / 'core'}", tmp_path / "main.c", tmp_path / "model.c", *sources]
    subprocess.run([*command, "-o", tmp_path / "run"], check=True)
    subprocess.run([tmp_path / "run"], check=True)


def test_a_check_names_the_first_layer_that_parts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checking.check(model, Settings(), samples=5, layers=True).equal
    compiled = checking.compile_file

    def damaged(path: Path, settings: Settings):  # type: ignore[no-untyped-def]
        program = compiled(path, settings)
        fields = program.calls[1].parameters.fields["matrix.channels.bias"]
        fields.values[2] += 4000  # type: ignore[union-attr]
        return program

    monkeypatch.setattr(checking, "compile_file", damaged)
    outcome = checking.check(model, Settings(), samples=5, layers=True)
    assert not outcome.equal and "operator 1 (CONV_2D) second parts first" in outcome.lines[0]
    whole = checking.check(model, Settings(), samples=5)
    assert not whole.equal and "output total parts first" in whole.lines[0]


def test_limits_name_what_takes_the_memory(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"arena needs [\d,]+ bytes, the limit is 100; .*CONV_2D second\): first 324, second 324, scratch \d+;",
    ):
        export(model, tmp_path / "out", Settings(ram_limit_bytes=100))
    with pytest.raises(ModelError, match=r"the constants take [\d,]+ bytes of flash, the limit is 10: second weights"):
        export(model, tmp_path / "out", Settings(flash_limit_bytes=10))
    assert not (tmp_path / "out").exists()


def test_psram_takes_what_does_not_fit(model: Path) -> None:
    graph = residual(channels=8)
    inputs = checking.random_inputs(graph, 5)
    whole = compile_graph(graph, Settings(name="whole"))
    split = compile_graph(graph, Settings(name="split", psram=True, ram_limit_bytes=whole.arena.peak_bytes - 1))
    assert 0 < split.arena.peak_bytes < whole.arena.peak_bytes and split.psram.peak_bytes > 0
    assert {place.region for place in split.layout.in_arena} == {Region.ARENA, Region.PSRAM}
    runs = host.build([whole, split])
    for given in inputs:
        a, b = (run.invoke(given)[0] for run in runs)
        assert a.tobytes() == b.tobytes()


def test_a_result_is_written_where_an_input_ended() -> None:
    """ADD may work in place: the sum and the second convolution share their storage."""
    graph = residual()
    lead, tail = graph.operators[-1], int8("tail", (1, 9, 9, 4), 0.1, 7)
    graph = Graph(
        graph.name,
        [*graph.operators, Operator("ADD", [lead.output, lead.output], [tail], FusedOptions())],
        graph.inputs,
        [tail],
    )
    program = compile_graph(graph)
    layout = program.layout
    total = next(call for call in program.calls if call.outputs[0].name == "total")
    assert layout.of(total.outputs[0]) in [layout.of(tensor) for tensor in total.inputs]
    assert program.arena.peak_bytes < 3 * 336


@pytest.mark.parametrize("name", ["", "Net", "3d", "a-b", "a" * 60, "é"])
def test_names_that_c_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="--name: .* cannot name functions in C; take"):
        check_name(name)


@pytest.mark.parametrize("name", ["int", "main", "string", "stdint", "gs", "gs_q8"])
def test_names_of_others_are_refused(name: str) -> None:
    """With `string.h` in a folder of headers nothing there compiles; `gs_q8.h` would be replaced by the core's."""
    with pytest.raises(ModelError, match=f"--name: '{name}' is taken by C or by the firmware core; add a word"):
        check_name(name)


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()  # stands where a file should go
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(OSError):
        write_all(tmp_path, {"c": b"1", "b/none": b"2", "a": b"3"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["codegen", str(model), "-o", str(tmp_path / "out"), "--name", "net"]
    assert main([*words, "--check", "--samples", "7", "--ram-limit", "2k"]) == 0
    said = capsys.readouterr().out
    assert "net.c" in said and "equal to tflite-micro: 7 inputs, 2,268 elements of 1 tensor" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"net.c", "net.h"}
    written = (tmp_path / "out" / "net.c").read_text()
    for wrong, message in (
        (["--ram-limit", "2x"], "'2x' is no number of bytes; write it as 65536, 64k or 2M"),
        (["--weights", "3"], "--weights is 8, 4, 2 or 1"),
        (["--psram"], "--psram: says how to split, not how much stays inside; add --ram-limit"),
        (["--name", "a-b"], "cannot name functions in C"),
        (["--set", "train.lr=1"], "--set is for an experiment's .toml"),
        (["--data", str(model)], "--data: tells what fewer bits cost; add --weights 4, 2 or 1"),
        (["--data", str(tmp_path / "no.npz"), "--weights", "4"], "no.npz: cannot be read"),
    ):
        assert main([*words, *wrong]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "out" / "net.c").read_text() == written, "a refused command writes nothing"
    assert main(["codegen", "examples/digits_gist.toml", "--weights", "4", "-o", str(tmp_path / "none")]) == 2
    assert "--weights is for a .tflite model" in capsys.readouterr().err
    (tmp_path / "cut.tflite").write_bytes(model.read_bytes()[:200])
    assert main(["codegen", str(tmp_path / "cut.tflite"), "-o", str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((2, 3)), np.zeros(3, int), "x of shape (2, 3) and y of shape (3,) are no labelled inputs"),
        (np.zeros((2, 3)), np.zeros(2), "are no labelled inputs; save it as numpy.savez(FILE, x=inputs, y=labels)"),
        (np.full((2, 3), np.nan), np.zeros(2, int), "x has elements that are no finite numbers"),
        (np.array(["a", "b"]), np.zeros(2, int), "x has elements that are no finite numbers"),
    ],
)
def test_data_that_tell_nothing_are_refused(x: Array, y: Array, message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=x, y=y)
    with pytest.raises(ModelError) as caught:
        read_samples(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_what_fewer_bits_cost_is_told_under_any_name(model: Path, tmp_path: Path) -> None:
    assert main(["codegen", str(model), "-o", str(tmp_path / "out"), "--name", "a" * 41, "--weights", "4"]) == 0


def test_a_constant_may_be_an_output() -> None:
    """Such as the weights, with a scale for each channel; one scale is no more than that."""
    x, y = int8("x", (1, 4), 0.05), int8("y", (1, 4), 0.05)
    weights = int8("w", (2, 2), [0.1, 0.2], data=[[1, 2], [3, 4]])
    graph = of_operators([Operator("RELU", [x], [y])], [y, weights])
    header = emit(compile_graph(graph))["model.h"]
    assert "MODEL_OUT0_SCALE" in header and "MODEL_OUT1_SCALE" not in header


def test_the_judge_of_an_open_batch_gets_the_shapes_that_were_inferred(tmp_path: Path) -> None:
    """tflite-micro takes what stands in the file for a dimension left open, even where other shapes contradict it."""
    graph = residual()
    for tensor in graph.tensors():
        tensor.dynamic = tensor.data is None
    path = tmp_path / "open.tflite"
    path.write_bytes(write(graph))
    assert checking.check(path, Settings(), samples=5, layers=True).equal


def test_a_node_and_a_model_fit_one_program(model: Path, tmp_path: Path) -> None:
    """Train and infer in one firmware: the node of the host port, linked with a model that it carries."""
    export(model, tmp_path, Settings(name="net"))
    main_c = (FIRMWARE / "port" / "host" / "main.c").read_text()
    assert main_c.count("int main(int argc, char **argv)\n{\n") == 1
    (tmp_path / "main.c").write_text(
        main_c.replace(
            "int main(int argc, char **argv)\n{\n",
            '#include "net.h"\n\nint main(int argc, char **argv)\n{\n'
            "    static int8_t in[NET_IN_COUNT], out[NET_OUT_COUNT];\n"
            "    static _Alignas(16) int8_t work[NET_ARENA_BYTES];\n"
            "    if (net_invoke(in, out, work) != 0) {\n        return 99;\n    }\n"
            '    fprintf(stderr, "%d\\n", out[0]);\n',
        )
    )
    program = executable("both", [*core_sources(), *kernel_sources(), tmp_path / "net.c", tmp_path / "main.c"], ["-O1"])
    done = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    (alone,) = host.build([checking.compile_file(model, Settings(name="alone"))])
    zeros = alone.invoke([np.zeros((1, 9, 9, 3), np.int8)])[0]
    assert done.returncode not in (0, 99) and int(done.stderr.split()[0]) == zeros.flat[0]  # no image was given


def test_scales_that_no_shift_can_express_are_refused() -> None:
    """tflite-micro shifts a word by 32 bits or more there, and C leaves open what comes of it."""
    graph = residual()
    output = graph.operators[0].output
    assert output.quantization is not None
    output.quantization.scales[:] = 1e-12
    for operator in graph.operators[:1]:
        operator.input(1).quantization.scales[:] = 1e3  # type: ignore[union-attr]
    with pytest.raises(ModelError, match=r"\(CONV_2D\) first: sums would be multiplied by .*; calibrate with"):
        compile_graph(graph)


def test_the_core_is_whole_where_no_kernel_asks_for_its_version(tmp_path: Path) -> None:
    x, y = int8("x", (1, 4), 0.1), int8("y", (2, 2), 0.1)
    shape = int32("shape", [2, 2])
    path = tmp_path / "shape.tflite"
    path.write_bytes(write(of_operators([Operator("RESHAPE", [x, shape], [y], ReshapeOptions())], [y])))
    export(path, tmp_path / "out", Settings(), with_core=True)
    subprocess.run(["cc", "-c", tmp_path / "out" / "model.c", "-o", tmp_path / "o.o"], check=True)
