"""Count the instructions of the zoo's models on the emulated ESP32-S3-class processor, beside plain loops.

Run: python benchmarks/inference_emulated.py [MODEL...]

Plain are the convolutions and dense layers as tflite-micro's reference kernels have them (inference_plain.h), compiled
with the same compiler and flags and run on the same shapes and weights; what else a model has (pools, softmax, ...)
counts for ours only. Instructions of an emulator are not cycles of a board: nothing here waits for memory, and QEMU's
processor lacks what the board has of vectors and loops.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from codegen.export import compile_file
from codegen.ir import ConvOptions, Operator, Padding
from codegen.program import Program, Settings
from models import zoo
from twin_emu.inference import run_model, run_sources

HERE = Path(__file__).parent
INPUTS = 2
KERNELS = {"CONV_2D": "plain_conv", "DEPTHWISE_CONV_2D": "plain_depthwise", "FULLY_CONNECTED": "plain_dense"}


def parameters(operator: Operator) -> tuple[dict[str, int], int]:
    """Return the fields of plain_t, and how many products a plain layer adds up, borders included."""
    weights, found = operator.input(1).shape, operator.output.shape
    if operator.kind == "FULLY_CONNECTED":
        return {"in_channels": weights[1], "out_channels": weights[0]}, weights[0] * weights[1]
    options, given = operator.options_as(ConvOptions), operator.input(0).shape
    fields = {"multiple": options.depth_multiplier}
    for at, (size, length, step) in enumerate((("height", "y", 0), ("width", "x", 1))):
        fields |= {f"in_{size}": given[1 + at], f"out_{size}": found[1 + at], size: weights[1 + at]}
        fields[f"stride_{length}"] = stride = options.stride[step]
        needed = (found[1 + at] - 1) * stride + weights[1 + at] - given[1 + at]
        fields[f"pad_{length}"] = max(needed, 0) // 2 if options.padding is Padding.SAME else 0
    fields |= {"in_channels": given[3], "out_channels": found[3]}
    depth = 1 if operator.kind == "DEPTHWISE_CONV_2D" else given[3]
    return fields, int(np.prod(found)) * weights[1] * weights[2] * depth


def plain_source(program: Program) -> tuple[str, int]:
    """Write a model's convolutions and dense layers as calls of plain loops; returns also their products."""
    lines, calls, products = ['#include "plain.h"', '#include "inference_plain.h"'], [], 0
    most = max(tensor.bytes for tensor in program.graph.tensors() if tensor.data is None)
    lines.append(f"static int8_t buffer[2][{most}];")
    for number, operator in enumerate(program.graph.operators):
        if operator.kind not in KERNELS:
            continue
        fields, count = parameters(operator)
        products += count
        weights = operator.constant(1).reshape(-1).tolist()
        values = ", ".join(
            f".{name} = {value}" for name, value in (fields | {"in_offset": 3, "out_offset": -5}).items()
        )
        lines.append(f"static const int8_t weights{number}[] = {{{', '.join(map(str, weights))}}};")
        lines.append(f"static const int32_t bias{number}[{fields['out_channels']}] = {{1}};")
        lines.append(f"static const plain_t layer{number} = {{{values}}};")
        side = len(calls) % 2
        given = [f"&layer{number}", f"buffer[{side}]" if calls else "in", f"weights{number}", f"bias{number}"]
        calls.append(f"    {KERNELS[operator.kind]}({', '.join(given)}, buffer[{1 - side}]);")
    used = {KERNELS[operator.kind] for operator in program.graph.operators if operator.kind in KERNELS}
    unused = [f"    (void){name};" for name in sorted(set(KERNELS.values()) - used)]
    lines += ["void plain_invoke(const int8_t *in, int8_t *out)", "{", *unused, *calls]
    lines += [f"    out[0] = buffer[{len(calls) % 2}][0];", "}"]
    return "\n".join(lines) + "\n", products


def main() -> None:
    """Print one row a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(zoo.names()), metavar="MODEL")
    print("model                products            C  a product        plain  a product  times fewer")
    for name in parser.parse_args().models:
        entry = zoo.get(name)
        inputs = np.load(entry.inputs)["x"][:INPUTS]
        program = compile_file(entry.tflite, Settings())
        ours = run_model(program, inputs).instructions
        with tempfile.TemporaryDirectory() as folder:
            source, products = plain_source(program)
            (Path(folder) / "plain.c").write_text(source)
            (Path(folder) / "plain.h").write_text(
                "#include <stdint.h>\nvoid plain_invoke(const int8_t *in, int8_t *out);\n"
            )
            (Path(folder) / "inference_plain.h").write_text((HERE / "inference_plain.h").read_text())
            invoke = (
                '#include "plain.h"\n#define JOB_INVOKE(in, out, arena) ((void)(arena), plain_invoke(in, out))\n'
                "#define JOB_ARENA_BYTES 1\n"
            )
            plain = run_sources(Path(folder), [Path(folder) / "plain.c"], invoke, inputs, 1).instructions
        print(
            f"{name:<18} {products:>10,} {ours:>12,.0f} {ours / products:>10.2f} {plain:>12,.0f}"
            f" {plain / products:>10.2f} {plain / ours:>12.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
