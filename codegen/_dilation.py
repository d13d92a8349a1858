"""Recognise dilated convolutions that are written as SPACE_TO_BATCH_ND, a plain convolution, BATCH_TO_SPACE_ND.

Every phase of the blocks is convolved as if its pixels were neighbours, so that the kernel reads pixels a block apart.
What is padded and not cropped again is the border of SAME, or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from codegen._evaluate import same_quantization
from codegen._move_rules import block_of, pairs
from codegen.ir import ConvOptions, DType, Graph, Operator, Padding, ReshapeOptions, Tensor

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_RENAMES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


@dataclass(frozen=True, eq=False)
class _Chain:
    """Hold the operators from the first to the last; sequences (NTC) become images for the convolution in between."""

    first: Operator
    middle: Operator
    last: Operator
    between: tuple[Operator, ...]  # reshapes before and after the middle
    pad: Operator | None = None  # before the first, in place of its own padding

    @property
    def operators(self) -> list[Operator]:
        """List all but the last, whose place the one convolution takes."""
        return [self.first, self.middle, *self.between, *([self.pad] if self.pad else [])]

    @property
    def source(self) -> Tensor:
        """Return what is convolved."""
        return (self.pad or self.first).input(0)

    @property
    def around(self) -> list[tuple[int, int]]:
        """Return the padding of each axis of the blocks."""
        if self.pad is None:
            return pairs(self.first, 2, len(self.axes))
        return pairs(self.pad, 1, len(self.axes) + 2)[1:-1]

    @property
    def pads_zero_points(self) -> bool:
        """Tell whether padding means the number 0; SPACE_TO_BATCH_ND pads with the integer 0 in tflite-micro."""
        return self.pad is not None or self.first.output.zero_point == 0

    @property
    def axes(self) -> tuple[int, ...]:
        """Return which axes of the convolution's image the blocks are of."""
        if not self.between:
            return 1, 2
        return (2,) if self.middle.input(0).shape[1] == 1 else (1,)


def dilate(graph: Graph) -> Graph:
    """Replace each such chain by one convolution, where the bits stay the same."""
    uses = Counter(id(tensor) for operator in graph.operators for tensor in operator.inputs)
    uses.update(id(tensor) for tensor in graph.outputs)
    maker = {id(tensor): operator for operator in graph.operators for tensor in operator.outputs}
    gone: set[int] = set()
    operators: list[Operator] = []
    for operator in graph.operators:
        for chain in _chains(operator, maker, uses):
            padding = _padding(chain)
            if padding is not None:
                gone |= set(map(id, chain.operators))
                operators += _dilated(chain, padding)
                break
        else:
            operators.append(operator)
    return replace(graph, operators=[operator for operator in operators if id(operator) not in gone])


def _chains(last: Operator, maker: Mapping[int, Operator], uses: Mapping[int, int]) -> Iterator[_Chain]:
    """Walk back from the last operator over what only the next one uses, with a padding before it and without."""
    if last.kind != "BATCH_TO_SPACE_ND":
        return
    found = [last]
    kinds: tuple[tuple[str, ...], ...] = (_CONVOLUTIONS, ("SPACE_TO_BATCH_ND",))
    if len(last.input(0).shape) == 3:
        kinds = (_RENAMES, _CONVOLUTIONS, _RENAMES, ("SPACE_TO_BATCH_ND",))
    for wanted in kinds:
        source = found[-1].input(0)
        before = maker.get(id(source))
        if before is None or before.kind not in wanted or uses[id(source)] > 1:
            return
        found.append(before)
    chain = _Chain(found[-1], found[len(found) // 2], last, tuple(found[1:-1:2]) if len(found) > 3 else ())
    if not _is_whole(chain):
        return
    pad = maker.get(id(chain.first.input(0)))
    if pad is not None and uses[id(pad.output)] == 1 and _pads_alone(pad, chain):
        yield replace(chain, pad=pad)
    yield chain


def _pads_alone(pad: Operator, chain: _Chain) -> bool:
    """Tell whether an operator pads the axes of the blocks, with zero points, and the first of the chain does not."""
    if pad.kind != "PAD" or not _keeps_meaning(pad) or any(map(any, chain.around)):
        return False
    around = pairs(pad, 1, len(pad.output.shape))
    return not any(around[0]) and not any(around[-1])


def _is_whole(chain: _Chain) -> bool:
    """Tell whether the image of a sequence has one row or one column, which the kernel leaves alone."""
    if not chain.between:
        return True
    batch, length, depth = chain.first.output.shape
    _, kept, filters = chain.last.input(0).shape
    window = chain.middle.input(1).shape[1:3]
    ends = (chain.middle.input(0).shape, chain.middle.output.shape)
    as_row = ((batch, 1, length, depth), (batch, 1, kept, filters))
    as_column = ((batch, length, 1, depth), (batch, kept, 1, filters))
    return (ends == as_row and window[0] == 1) or (ends == as_column and window[1] == 1)


def _padding(chain: _Chain) -> Padding | None:
    """Return the padding of the one convolution that does the same, or None if there is none."""
    first, middle, last = chain.first, chain.middle, chain.last
    options = middle.options_as(ConvOptions)
    if block_of(first) != block_of(last) or (options.stride, options.dilation) != ((1, 1), (1, 1)):
        return None
    if options.padding is not Padding.VALID or not all(map(_keeps_meaning, (first, last, *chain.between))):
        return None
    is_valid = is_same = True
    crops = pairs(last, 2, len(chain.axes))
    for place, (axis, around, crop) in enumerate(zip(chain.axes, chain.around, crops, strict=True)):
        length, kept = chain.source.shape[1 + place], last.output.shape[1 + place]
        reach = (middle.input(1).shape[axis] - 1) * block_of(first)[place]
        lead = around[0] - crop[0]  # of padding before the first pixel that is kept
        is_valid &= lead == 0 and kept == length - reach
        is_same &= lead == reach // 2 and kept == length
    if is_valid:
        return Padding.VALID
    return Padding.SAME if is_same and chain.pads_zero_points else None


def _keeps_meaning(operator: Operator) -> bool:
    """Tell whether both ends are int8 of one scale."""
    source, output = operator.input(0), operator.output
    if not source.dtype is output.dtype is DType.INT8 or source.quantization is None:
        return False
    return source.quantization.is_per_tensor and same_quantization(source, output)


def _dilated(chain: _Chain, padding: Padding) -> Iterator[Operator]:
    """Make the one convolution, of an image again."""
    block = block_of(chain.first)
    dilation = block if chain.axes == (1, 2) else (1, block[0]) if chain.axes == (2,) else (block[0], 1)
    options = replace(chain.middle.options_as(ConvOptions), dilation=dilation, padding=padding)
    source, output = chain.source, chain.last.output
    filters = chain.middle.inputs[1:]
    if not chain.between:
        yield replace(chain.middle, inputs=[source, *filters], outputs=[output], options=options)
        return
    given, made = _as_image(source, chain.axes), _as_image(output, chain.axes)
    yield Operator("RESHAPE", [source], [given], ReshapeOptions(given.shape), chain.first.index)
    yield replace(chain.middle, inputs=[given, *filters], outputs=[made], options=options)
    yield Operator("RESHAPE", [made], [output], ReshapeOptions(output.shape), chain.last.index)


def _as_image(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    batch, length, channels = tensor.shape
    shape = (batch, 1, length, channels) if axes == (2,) else (batch, length, 1, channels)
    return replace(tensor, name=f"{tensor.name}/image", shape=shape, index=-1)
