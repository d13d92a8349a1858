"""Write an experiment as TOML: the little of TOML that an experiment uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dump(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the TOML text of sections of plain values; None is left out."""
    return "\n".join(
        "".join([f"[{name}]\n", *(f"{key} = {_value(v)}\n" for key, v in options.items() if v is not None)])
        for name, options in sections.items()
    )


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return "{ " + ", ".join(f"{key} = {_value(v)}" for key, v in value.items()) + " }"
        case [Mapping(), *_]:
            return "[\n" + "".join(f"    {_value(item)},\n" for item in value) + "]"
        case tuple() | list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return repr(value)
