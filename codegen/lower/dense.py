"""Lower FULLY_CONNECTED; convolutions, the other operators of this family, have modules of their own."""

from __future__ import annotations

from codegen.ir import DenseOptions, Operator, OperatorError, shape_text
from codegen.lower import _convolution, _transpose_conv
from codegen.lower._calls import Call, Lowered, Struct, lowers
from codegen.lower._quantized import DAMAGED, int8
from codegen.lower._weights import check_elements, factors, matrix_fields, read_weights

__all__ = ["_convolution", "_transpose_conv"]  # imported to register what they lower


@lowers("FULLY_CONNECTED")
def _fully_connected(operator: Operator) -> Lowered:
    options = operator.options_as(DenseOptions)
    source, output = int8(operator, operator.input(0)), int8(operator, operator.output)
    if options.shuffled:
        raise OperatorError(operator, "the weights are shuffled for one processor", "convert the model again")
    weights = read_weights(operator, 1, 2, axis=0, rank=2)
    units, terms = weights.tensor.shape
    columns = source.size // terms
    if source.size != columns * terms or output.size != columns * units or output.shape[-1:] != (units,):
        raise OperatorError(
            operator,
            f"{shape_text(source.shape)} times weights {shape_text(weights.tensor.shape)} "
            f"does not make {shape_text(output.shape)}",
            DAMAGED,
        )
    check_elements(operator, source, output)
    factor = factors(source, weights, output)
    fields = matrix_fields(weights, [weights.values], source, output, options.activation, factor)
    struct = Struct("gs_q8_dense_t", fields | {"columns": columns})
    return Call(operator, f"gs_q8_dense{weights.suffix}", struct, (source,), (output,))
