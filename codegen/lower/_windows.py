"""Place the windows of an operator along rows or columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from codegen.ir import Operator, OperatorError

SIDE_MAX: Final = (1 << 15) - 1  # of images and windows, so that positions fit int32 with much to spare


@dataclass(frozen=True)
class Windows:
    """Windows along one axis of `size` elements."""

    size: int
    taps: int
    stride: int
    dilation: int
    same: bool  # padding SAME; otherwise VALID

    @property
    def reach(self) -> int:
        """Count the elements from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def count(self) -> int:
        """Count the windows; at most 0 where none fits."""
        return -(-(self.size if self.same else self.size - self.reach + 1) // self.stride)

    @property
    def pad(self) -> int:
        """Count the elements that the first window reads before the axis: the smaller half of those on both sides."""
        return max(0, (self.count - 1) * self.stride + self.reach - self.size) // 2


def check_windows(operator: Operator, *along: Windows) -> None:
    """Refuse windows whose positions the kernels cannot count, or that are none. Raises OperatorError."""
    for windows in along:
        if min(windows.taps, windows.stride, windows.dilation, windows.size) < 1:
            raise OperatorError(
                operator,
                f"{windows.taps} taps, stride {windows.stride} and dilation {windows.dilation} along {windows.size}",
                "the file is damaged: convert the model again",
            )
        if max(windows.size, windows.reach, windows.stride) > SIDE_MAX:
            raise OperatorError(
                operator, f"a side of the image or of the window is longer than {SIDE_MAX:,}", "use a smaller image"
            )
