"""Put a validation error into words: what is wrong, what is allowed, what may have been meant."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

Key = tuple[str | int, ...]
Finding = tuple[Key, str, str | None]

_KINDS: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text in quotes",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}
_BOUNDS: Final = {"greater_than": ("gt", ">"), "greater_than_equal": ("ge", ">="),
                  "less_than": ("lt", "<"), "less_than_equal": ("le", "<=")}  # fmt: skip
_LENGTHS: Final = {"too_short": ("min_length", "at least"), "too_long": ("max_length", "at most")}


def explain(key: Key, detail: Mapping[str, Any], tag: str | None) -> Finding:
    """Turn one pydantic error at `key` into a finding; `tag` names the key that picks a union's choice."""
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in ("missing", "union_tag_not_found"):
        key = key if kind == "missing" else (*key, tag or "")
        return key, "is missing", f"add it to [{key[0]}]" if len(key) == 2 else "add it"
    if kind == "union_tag_invalid":
        return _not_allowed((*key, tag or ""), context["tag"], re.findall(r"'([^']*)'", context["expected_tags"]))
    if kind == "literal_error":
        numbers = re.findall(r"\d+", context["expected"])
        return _not_allowed(key, given, re.findall(r"'([^']*)'", context["expected"]) or numbers)
    if kind in _KINDS:
        return key, f"is {_shown(given)}", f"allowed {_KINDS[kind]}"
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        bound = context[name]
        return key, f"is {_shown(given)}", f"allowed {sign} {f'{bound:g}' if isinstance(bound, float) else bound}"
    if kind in _LENGTHS:
        name, word = _LENGTHS[kind]
        return key, f"has {context['actual_length']} entries", f"allowed {word} {context[name]}"
    if kind == "string_pattern_mismatch":
        return key, f"is {_shown(given)}", "allowed up to 64 letters, digits and . _ -, a letter or digit first"
    if kind == "string_too_short":
        return key, "is empty", "write a name"
    if kind == "value_error":
        return key, f"is {_shown(given)}: {context['error']}", None
    return key, f"is {_shown(given)}: {detail['msg'].lower()}", None


def explain_unknown(key: Key, allowed: Sequence[str], everywhere: Sequence[str], noun: str) -> Finding:
    """Report a key nobody knows; look for the one meant in its own table first, then in the whole file."""
    name = str(key[-1])
    close = get_close_matches(name, allowed, 1, 0.6)
    close = close or [k for k in everywhere if k.partition(".")[2] == name][:1]
    elsewhere = {k.partition(".")[2]: k for k in everywhere}
    close = close or [elsewhere[k] for k in get_close_matches(name, elsewhere, 1, 0.8)]
    return key, f"unknown {noun}", _allowed(allowed, close)


def _not_allowed(key: Key, given: Any, allowed: Sequence[str]) -> Finding:
    close = get_close_matches(str(given), allowed, 1, 0.5) if isinstance(given, str) else []
    return key, f"is {_shown(given)}", _allowed(allowed, close)


def _allowed(allowed: Sequence[str], close: Sequence[str]) -> str:
    text = f"allowed {', '.join(allowed)}"
    return f"{text}; did you mean '{close[0]}'?" if close else text


def _shown(value: Any) -> str:
    """Show a value as the file has it, shortened."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            text = f"'{value}'"
        case tuple() | list():
            text = f"[{', '.join(map(_shown, value))}]"
        case dict():
            return "a table"
        case _:
            text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
