"""Make the names that converters give to tensors readable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short form of each name; where that would make two alike, the name itself.

    Converters name a tensor after everything that was fused into it, and begin every name with the model's.
    """
    parts = {name: name.split(";")[0].split(", ")[0] for name in names}
    heads = {part.split("/")[0] for part in parts.values() if "/" in part}
    if len(heads) == 1:
        parts = {name: part.split("/", 1)[-1] for name, part in parts.items()}
    counts = Counter(parts.values())
    return {name: part if part and counts[part] == 1 else name for name, part in parts.items()}
