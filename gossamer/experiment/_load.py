"""Load an experiment file and report everything that is wrong with it at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from gossamer.errors import ExperimentError, Problem
from gossamer.experiment._checks import check, squarest
from gossamer.experiment._explain import explain, explain_unknown
from gossamer.experiment._layers import LayerSection
from gossamer.experiment._links import read_links
from gossamer.experiment._locate import line_of, locate
from gossamer.experiment._model import Experiment
from gossamer.experiment._section import Section
from gossamer.experiment._sections import (
    PARTITION_OPTIONS,
    ExperimentSection,
    FaultEvent,
    FileTopology,
    ModelSection,
    PolicySection,
    TopologySection,
    TorusTopology,
)

Key = tuple[str | int, ...]
Tables = dict[str, dict[str, Any]]

_FIELDS: dict[str, Any] = {name: field.annotation for name, field in Experiment.model_fields.items()}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    **{name: TypeAdapter(kind) for name, kind in _FIELDS.items() if name not in {"policy", "topology"}},
    "policy": TypeAdapter(PolicySection),
    "topology": TypeAdapter(TopologySection),
}
_TAGS = {"policy": "name", "topology": "kind"}
_CHOICES: dict[str, dict[str, type[Section]]] = {
    section: {get_args(kind.model_fields[_TAGS[section]].annotation)[0]: kind for kind in get_args(get_args(union)[0])}
    for section, union in (("policy", PolicySection), ("topology", TopologySection))
}

_LAYER_KEYS: dict[str, list[str]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: [
        field.alias or name for name, field in kind.model_fields.items()
    ]
    for kind in get_args(LayerSection)
}


_ITEM_KEYS = {"churn": ["node", "from", "to"], "faults": list(FaultEvent.model_fields)}  # of tables in a list


def load_experiment(path: Path | str, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file.

    An override is `section.key=value` with a TOML value; a word needs no quotes. One that picks another policy,
    topology or partition leaves the file's options behind that only the old one knew.

    Raises: ExperimentError, which names every problem with its line, or the override it came from.
    """
    return _Loader(Path(path)).load(overrides)


def place_problems(error: ExperimentError, path: Path | str, overrides: Sequence[str] = ()) -> ExperimentError:
    """Add to problems found later, such as by the data, where in the file or the overrides their keys were given."""
    loader = _Loader(Path(path))
    loader.load(overrides)
    return ExperimentError(problem if problem.where else loader.place(problem) for problem in error.problems)


class _Loader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: list[Problem] = []
        self._set: dict[Key, str] = {}  # keys that overrides gave -> their text

    def load(self, overrides: Sequence[str]) -> Experiment:
        tables = self._read()
        self._override(tables, overrides)
        sections = self._validate(tables)
        for finding in check(sections):
            self._note(*finding)
        sections = self._complete(sections)
        if self._problems:
            raise ExperimentError(dict.fromkeys(self._problems))
        return Experiment.model_validate(sections)

    def _read(self) -> Tables:
        try:
            text = self._path.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ExperimentError([Problem(str(self._path), "", "is not UTF-8 text", "save it as UTF-8")]) from error
        except OSError as error:
            raise ExperimentError([Problem(str(self._path), "", f"cannot be read: {error.strerror}")]) from error
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ExperimentError([self._syntax(str(error))]) from error
        except RecursionError as error:
            raise ExperimentError([Problem(str(self._path), "", "is nested too deeply")]) from error
        self._lines = locate(text.replace("\r\n", "\n"))
        return tables

    def _syntax(self, message: str) -> Problem:
        what, _, place = message.partition(" (at ")
        found = re.match(r"line (\d+), column (\d+)", place)
        where = f"{self._path}:{found[1]}" if found else str(self._path)
        return Problem(where, "", f"not TOML: {what[:1].lower()}{what[1:]}", f"column {found[2]}" if found else None)

    # --- overrides ---------------------------------------------------------------------------------------------

    def _override(self, tables: Tables, overrides: Sequence[str]) -> None:
        given: list[tuple[str, str, Any]] = []
        for text in overrides:
            name, equals, value = text.partition("=")
            section, dot, key = name.strip().partition(".")
            if not (equals and dot and section and key) or "\n" in text:
                mend = "write section.key=value, such as train.lr=0.1"
                self._problems.append(Problem(f"--set {text}", "", "not an override", mend))
                continue
            self._set[section, key] = text
            given.append((section, key, _parse_value(value.strip())))
        for section, key, value in given:
            table = tables.setdefault(section, {})
            if not isinstance(table, dict):
                continue  # reported by validation
            if table.get(key, value) != value:
                for unknown in _left_behind(section, key, value, table):
                    if (section, unknown) not in self._set:
                        del table[unknown]
            table[key] = value

    # --- validation --------------------------------------------------------------------------------------------

    def _validate(self, tables: Tables) -> dict[str, Section]:
        sections: dict[str, Section] = {}
        for unknown in tables.keys() - _ADAPTERS.keys():
            self._note(*explain_unknown((unknown,), list(_ADAPTERS), _ALL_KEYS, "section"))
        for name, adapter in _ADAPTERS.items():
            if name not in tables and not Experiment.model_fields[name].is_required():
                sections[name] = Experiment.model_fields[name].get_default()
                continue
            if name not in tables:
                self._note((name,), "the section is missing", f"add [{name}]")
                continue
            try:
                sections[name] = adapter.validate_python(_frozen(tables[name]))
            except ValidationError as error:
                self._explain(name, tables[name], error)
        return sections

    def _explain(self, name: str, table: Any, error: ValidationError) -> None:
        tag = table.get(_TAGS.get(name, "")) if isinstance(table, dict) else None
        details = error.errors(include_url=False)
        for detail in details:
            loc = tuple(detail["loc"])
            if any(other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in details):
                continue  # pydantic also counts a list without its wrong elements
            if name in _TAGS and loc and loc[0] == tag:
                loc = loc[1:]  # pydantic names the union's choice
            loc, layer_kind = _without_choices(loc)
            loc = _as_given(table, loc)
            key = (name, *loc)
            if detail["type"] == "extra_forbidden":
                own = len(loc) == 1  # a key of the section; others are of a table in a list, and stand nowhere else
                allowed = _keys(name, tag) if own else _LAYER_KEYS.get(layer_kind) or _ITEM_KEYS.get(name, [])
                self._note(*explain_unknown(key, allowed, _ALL_KEYS if own else [], "key"))
            else:
                self._note(*explain(key, detail, "kind" if name == "model" else _TAGS.get(name)))

    def _complete(self, sections: dict[str, Section]) -> dict[str, Section]:
        """Fill in what follows from other sections or files."""
        model = sections.get("model")
        if isinstance(model, ModelSection) and model.weights is not None:
            file = (self._path.parent / model.weights).resolve()
            sections = {**sections, "model": model.model_copy(update={"weights": str(file)})}
        head, topology = sections.get("experiment"), sections.get("topology")
        if self._problems or not isinstance(head, ExperimentSection):
            return sections
        match topology:
            case TorusTopology(rows=rows, columns=columns):
                if rows is None and columns is None:
                    rows, columns = squarest(head.nodes)
                rows = rows or head.nodes // (columns or 1)
                update: dict[str, Any] = {"rows": rows, "columns": head.nodes // rows}
            case FileTopology(path=str(path)):
                file = self._path.parent / path
                links, problems = read_links(file, head.nodes, str(file))
                self._problems += problems
                update = {"path": None, "links": links}
            case _:
                return sections
        return {**sections, "topology": topology.model_copy(update=update)}

    def place(self, problem: Problem) -> Problem:
        """Say where the key of a problem was given."""
        key = tuple(problem.key.split("."))
        return Problem(self._where(key), problem.key, problem.what, problem.mend)

    def _note(self, key: Key, what: str, mend: str | None) -> None:
        shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)[1:]
        self._problems.append(Problem(self._where(key), shown, what, mend))

    def _where(self, key: Key) -> str:
        text = next((self._set[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._set), None)
        if text is None and key not in self._lines:
            text = next((given for name, given in self._set.items() if name[:1] == key), None)  # a section of its own
        return f"--set {text}" if text is not None else f"{self._path}:{line_of(self._lines, key)}"


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _left_behind(section: str, key: str, value: Any, table: Mapping[str, Any]) -> list[str]:
    """Name the options that lose their meaning when `key` becomes `value`."""
    if _TAGS.get(section) == key and value in _CHOICES[section]:
        return [name for name in table if name not in _keys(section, value)]
    if (section, key) == ("data", "partition") and value in PARTITION_OPTIONS:
        optional = {name for names in PARTITION_OPTIONS.values() for name in names}
        return [name for name in table if name in optional - PARTITION_OPTIONS[value]]
    if (section, key) == ("model", "layers") and isinstance(value, list) and all(isinstance(w, int) for w in value):
        return [name for name in table if name == "input"]
    return []


def _as_given(table: Any, loc: Key) -> Key:
    """Leave out the place in a pair where the file has one number for both."""
    value = table
    for depth, part in enumerate(loc):
        if isinstance(part, int) and not isinstance(value, list):
            return loc[:depth]
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return loc
    return loc


def _without_choices(loc: Key) -> tuple[Key, str]:
    """Leave out what pydantic calls the choices of unions; return also the kind of layer that the path leads into."""
    plain = [part for part in loc if not str(part).startswith("<")]
    if len(plain) > 2 and plain[0] == "layers" and plain[2] in _LAYER_KEYS:
        return (*plain[:2], *plain[3:]), str(plain[2])
    return tuple(plain), ""


def _keys(section: str, tag: Any = None) -> list[str]:
    if section not in _CHOICES:
        return list(_FIELDS[section].model_fields)
    choices = _CHOICES[section]
    kinds = [choices[tag]] if tag in choices else list(choices.values())
    return list(dict.fromkeys(key for kind in kinds for key in [_TAGS[section], *kind.model_fields]))


def _frozen(value: Any) -> Any:
    """Turn lists into tuples: sections never change."""
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_ALL_KEYS = [f"{section}.{key}" for section in _ADAPTERS for key in _keys(section)]
