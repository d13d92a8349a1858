"""Work out which indices SLICE and STRIDED_SLICE take from each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen._shape_rules import DAMAGED, integers
from codegen.ir import Operator, OperatorError, SliceOptions, shape_text


@dataclass(frozen=True)
class Cut:
    """Take `count` indices of one axis from `start` on, `step` apart; the step may be negative, not 0."""

    start: int
    count: int
    step: int = 1

    @property
    def indices(self) -> slice:
        """Return them as numpy wants them."""
        if self.count == 0:
            return slice(0, 0)
        stop = self.start + self.count * self.step
        return slice(self.start, None if stop < 0 else stop, self.step)


def cuts_of(operator: Operator) -> tuple[list[Cut], tuple[int, ...]]:
    """Return one cut for each axis of input 0, and the shape of the output, which may have fewer axes or more.

    The other inputs must be constant. No cut leads out of the input. Raises OperatorError.
    """
    return _slice(operator) if operator.kind == "SLICE" else _strided_slice(operator)


def _slice(operator: Operator) -> tuple[list[Cut], tuple[int, ...]]:
    shape = operator.input(0).shape
    begins, sizes = integers(operator, 1), integers(operator, 2)
    if len(begins) != len(shape) or len(sizes) != len(shape):
        raise _refused(operator, f"it has {len(begins)} begins and {len(sizes)} sizes for {shape_text(shape)}")
    cuts = []
    for length, begin, size in zip(shape, begins, sizes, strict=True):
        count = length - begin if size == -1 else size
        if begin < 0 or count < 0 or begin + count > length:
            raise _refused(operator, f"indices {begin} to {begin + count} of an axis of {length}")
        cuts.append(Cut(begin, count))
    return cuts, tuple(cut.count for cut in cuts)


def _strided_slice(operator: Operator) -> tuple[list[Cut], tuple[int, ...]]:
    """Read the three lists as TensorFlow does: an entry cuts an axis, adds one, or stands for all that are left."""
    shape, options = operator.input(0).shape, operator.options_as(SliceOptions)
    begins, ends, steps = (integers(operator, position) for position in (1, 2, 3))
    if not len(begins) == len(ends) == len(steps):
        raise _refused(operator, f"it has {len(begins)} begins, {len(ends)} ends and {len(steps)} strides")
    entries = list(zip(begins, ends, steps, strict=True))
    if options.ellipsis_mask & (options.ellipsis_mask - 1):
        raise _refused(operator, "it has several ellipses")
    cuts: list[Cut] = []
    kept: list[int] = []

    def keep_all(count: int) -> None:
        axes = shape[len(cuts) : len(cuts) + count]
        cuts.extend(Cut(0, length) for length in axes)
        kept.extend(axes)

    for place, entry in enumerate(entries):
        bit = 1 << place
        if options.ellipsis_mask & bit:
            later = sum(not options.new_axis_mask >> i & 1 for i in range(place + 1, len(entries)))
            keep_all(max(0, len(shape) - len(cuts) - later))
        elif options.new_axis_mask & bit:
            kept.append(1)
        elif len(cuts) == len(shape):
            raise _refused(operator, f"it cuts more axes than {shape_text(shape)} has")
        else:
            cuts.append(_cut(operator, shape[len(cuts)], entry, bit))
            if not options.shrink_axis_mask & bit:
                kept.append(cuts[-1].count)
    keep_all(len(shape) - len(cuts))
    return cuts, tuple(kept)


def _cut(operator: Operator, length: int, entry: Sequence[int], bit: int) -> Cut:
    begin, end, step = entry
    options = operator.options_as(SliceOptions)
    if step == 0:
        raise _refused(operator, "a stride is 0")
    # The indices that can be reached: forwards the end may lie one behind the axis, backwards one before it.
    least, most = (0, length) if step > 0 else (-1, length - 1)

    def index(value: int) -> int:
        return min(max(value + length if value < 0 else value, least), most)

    start = (least if step > 0 else most) if options.begin_mask & bit else index(begin)
    if options.shrink_axis_mask & bit:
        if step < 0 or not 0 <= start < length:
            raise _refused(operator, f"index {begin} of an axis of {length}")
        return Cut(start, 1)
    if options.offset:
        end += start
    stop = (most if step > 0 else least) if options.end_mask & bit else index(end)
    return Cut(start, max(0, -((start - stop) // step)), step)


def _refused(operator: Operator, reason: str) -> OperatorError:
    return OperatorError(operator, reason, DAMAGED)
