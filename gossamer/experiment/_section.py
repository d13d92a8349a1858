"""Define what all sections of an experiment file are made of."""

from __future__ import annotations

import math
import struct
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gossamer.spec.constants import NODE_ID_MAX

U32_MAX = 2**32 - 1


def _binary32(x: float) -> float:
    """Refuse what a node's float32 would turn into infinity or zero."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", x))
    except OverflowError:
        rounded = math.inf
    if math.isinf(rounded) or (rounded == 0) != (x == 0):
        raise ValueError("does not fit a 32-bit float")
    return x


def _below_one(x: float) -> float:
    """Refuse what a node's float32 would turn into 1."""
    if struct.unpack("<f", struct.pack("<f", x)) == (1.0,):
        raise ValueError("is 1 as a 32-bit float")
    return x


class Section(BaseModel):
    """Refuse unknown keys and inexact types; never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)

    def unused(self) -> tuple[str, ...]:
        """Name the options that have no meaning beside the others given."""
        return ()


Real = Annotated[float, AfterValidator(_binary32)]
NonNegative = Annotated[Real, Field(ge=0)]
Positive = Annotated[Real, Field(gt=0)]
Factor = Annotated[Real, Field(ge=1)]
Beta = Annotated[Real, Field(ge=0, lt=1), AfterValidator(_below_one)]
Probability = Annotated[float, Field(ge=0, le=1)]
Fraction01 = Annotated[float, Field(gt=0, le=1)]
Ema = Annotated[Real, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=U32_MAX)]
Count16 = Annotated[int, Field(ge=1, le=65535)]
NodeId = Annotated[int, Field(ge=0, le=NODE_ID_MAX)]
