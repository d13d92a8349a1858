"""Turn every operator of a graph into one call of a kernel of the firmware core.

A kernel is called as `kernel(&parameters, inputs..., outputs..., scratch)`, the scratch only when some was asked for.
Everything that is known before the device runs is worked out here: multipliers, folded biases, tables, loop bounds.
Each module of this package serves one family of operators and registers its functions with `lowers`.
"""

from codegen.lower._calls import Alias, Call, Lowered, Struct, Table, lower, lowers, supported
from codegen.lower.islands import lower_graph, only_in_islands

__all__ = [
    "Alias",
    "Call",
    "Lowered",
    "Struct",
    "Table",
    "lower",
    "lower_graph",
    "lowers",
    "only_in_islands",
    "supported",
]
