"""Check what no single option can know: how the sections of an experiment fit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from gossamer.experiment._explain import Key
from gossamer.experiment._faults import effects
from gossamer.experiment._network import Finding, MisfitError, network
from gossamer.experiment._section import Section
from gossamer.experiment._sections import (
    PARTITION_OPTIONS,
    ChurnSection,
    ClusteredTopology,
    DataSection,
    ExperimentSection,
    FaultsSection,
    FileTopology,
    GistPolicy,
    LinkSection,
    ModelSection,
    PolicySection,
    RegularTopology,
    ScheduleSection,
    SegmentedGossipPolicy,
    TopkPolicy,
    TopologySection,
    TorusTopology,
    TrainSection,
    WattsStrogatzTopology,
)
from gossamer.spec.constants import HEADER_BYTES, SEGMENT_HEADER_BYTES, TAG_BYTES
from gossamer.spec.nn import Model

_FRAGMENTS_MAX = 65535
_DROPOUT_DRAWS_MAX = 2**32


def exact(number: float) -> Fraction:
    """Return the decimal that was written, not its nearest double: 0.4 is 2/5."""
    return Fraction(str(number))


def squarest(nodes: int) -> tuple[int, int]:
    """Return rows and columns of the squarest torus."""
    rows = next(r for r in range(int(nodes**0.5 + 1), 0, -1) if nodes % r == 0 and r * r <= nodes)
    return rows, nodes // rows


def check(sections: Mapping[str, Section]) -> Iterator[Finding]:
    """Yield what is wrong; a check whose sections are not all valid is passed over."""
    parts: dict[str, Any] = dict(sections)
    model, train = sections.get("model"), sections.get("train")
    if isinstance(model, ModelSection) and isinstance(train, TrainSection):
        try:
            parts["network"] = network(model, train)
        except MisfitError as error:
            yield from error.findings
    for rule, needs in _RULES.items():
        if all(name in parts for name in needs):
            yield from rule(*(parts[name] for name in needs))


def _data(data: DataSection) -> Iterator[Finding]:
    uses = PARTITION_OPTIONS[data.partition]
    for key in data.unused():
        if key in data.model_fields_set:
            mend = f"remove it, or choose {_partitions_with(key)}"
            yield ("data", key), f"partition {data.partition!r} has no such option", mend
    if "alpha" in uses and data.alpha > 1e6:
        yield ("data", "alpha"), f"is {data.alpha:g}", "allowed up to 1e6; for even shards use partition 'iid'"
    permille = exact(data.validation) * 1000
    if permille.denominator != 1:
        yield ("data", "validation"), f"is {data.validation}", "allowed steps of 0.001"


def _partitions_with(key: str) -> str:
    return " or ".join(repr(name) for name, keys in PARTITION_OPTIONS.items() if key in keys)


def _model(model: ModelSection) -> Iterator[Finding]:
    for key in sorted(set(model.unused()) & model.model_fields_set):
        yield ("model", key), "has no use beside model.weights", "remove one of the two"


def _train(train: TrainSection) -> Iterator[Finding]:
    for key in sorted(set(train.unused()) & train.model_fields_set):
        other = "sgd" if train.optimizer == "adam" else "adam"
        mend = f"remove it, or choose '{other}'"
        yield ("train", key), f"optimizer '{train.optimizer}' has no such option", mend


def _dropout(network: Model, train: TrainSection) -> Iterator[Finding]:
    draws = train.local_steps * train.batch * sum(network.dropout_sizes.values())
    if draws > _DROPOUT_DRAWS_MAX:
        what = f"{train.local_steps} steps of {train.batch} samples need {draws:,} draws of dropout a round"
        yield ("train", "local_steps"), what, f"allowed up to {_DROPOUT_DRAWS_MAX:,}"


def _rate(train: TrainSection, schedule: ScheduleSection) -> Iterator[Finding]:
    if schedule.policy != "constant" and schedule.floor > train.lr:
        yield ("schedule", "floor"), f"is {schedule.floor:g}, above train.lr {train.lr:g}", "lower it"


def _policy(policy: PolicySection, network: Model, data: DataSection) -> Iterator[Finding]:
    count = network.parameters
    if isinstance(policy, TopkPolicy) and policy.error_feedback:
        mend = "remove it: what was not sent waits in topk's own reference"
        yield ("policy", "error_feedback"), "does not apply to 'topk'", mend
    if isinstance(policy, GistPolicy | SegmentedGossipPolicy) and policy.segments > count:
        yield ("policy", "segments"), f"is {policy.segments}", f"allowed up to the model's {count} parameters"
    if isinstance(policy, SegmentedGossipPolicy) and policy.fifo is None and policy.segments * policy.pulls > 65535:
        yield ("policy", "pulls"), "segments * pulls is above 65535", "lower one, or set fifo"
    if isinstance(policy, GistPolicy):
        if policy.threshold > policy.fifo:
            mend = f"raise policy.fifo to {policy.threshold} or more, or nothing is ever merged"
            yield ("policy", "threshold"), f"is {policy.threshold}, above policy.fifo {policy.fifo}", mend
        if policy.success != "equal" and data.validation == 0:
            mend = "set data.validation above 0, or success = 'equal'"
            yield ("policy", "success"), f"{policy.success!r} needs validation samples", mend


def _topology(topology: TopologySection, experiment: ExperimentSection) -> Iterator[Finding]:
    nodes = experiment.nodes
    match topology:
        case TorusTopology(rows=rows, columns=columns):
            if rows is not None and columns is not None and rows * columns != nodes:
                yield ("topology", "rows"), f"{rows} * {columns} is not {nodes} nodes", _divisors(nodes)
            elif (given := rows or columns) is not None and nodes % given:
                key = "rows" if rows is not None else "columns"
                yield ("topology", key), f"is {given}, no divisor of {nodes} nodes", _divisors(nodes)
        case RegularTopology(degree=degree):
            if degree >= nodes:
                yield ("topology", "degree"), f"is {degree} with {nodes} nodes", f"allowed 1 .. {nodes - 1}"
            elif degree * nodes % 2:
                yield ("topology", "degree"), f"{degree} * {nodes} nodes is odd", "make one of the two even"
        case WattsStrogatzTopology(degree=degree):
            if degree >= nodes or degree % 2:
                allowed = f"allowed even numbers below the {nodes} nodes"
                yield ("topology", "degree"), f"is {degree}", allowed
        case ClusteredTopology(clusters=clusters):
            if clusters > nodes:
                yield ("topology", "clusters"), f"is {clusters}", f"allowed 1 .. {nodes}, the number of nodes"
        case FileTopology():
            yield from _listed(topology, nodes)


def _divisors(nodes: int) -> str:
    return f"allowed divisors of {nodes}, such as {' * '.join(map(str, squarest(nodes)))}"


def _listed(topology: FileTopology, nodes: int) -> Iterator[Finding]:
    if (topology.path is None) == (topology.links is None):
        wrong = "needs path or links" if topology.path is None else "has both path and links"
        yield ("topology",), wrong, "give one of the two"
    for number, (a, b) in enumerate(topology.links or ()):
        if a == b:
            yield ("topology", "links", number), f"node {a} is linked to itself", "remove it"
        elif max(a, b) >= nodes:
            yield ("topology", "links", number), f"there is no node {max(a, b)}", f"allowed 0 .. {nodes - 1}"


def _link(link: LinkSection, network: Model, policy: PolicySection) -> Iterator[Finding]:
    low, high = link.bandwidth_kbps
    if low > high:
        yield ("link", "bandwidth_kbps"), f"[{low}, {high}] runs backwards", "write the least first"
    if link.jitter_ms > link.delay_ms:
        yield ("link", "jitter_ms"), f"is {link.jitter_ms:g}, above delay_ms {link.delay_ms:g}", "lower it"
    if link.corruption and not link.auth:
        yield ("link", "corruption"), "would go unnoticed: frames have no tags", "set auth = true"
    count = network.parameters
    message_bytes = SEGMENT_HEADER_BYTES + -(-count * policy.bits // 8) + -(-count // 8)
    room_bytes = link.mtu_bytes - HEADER_BYTES - (TAG_BYTES if link.auth else 0)
    if message_bytes > room_bytes * _FRAGMENTS_MAX:
        mend = f"allowed {message_bytes // _FRAGMENTS_MAX + HEADER_BYTES + TAG_BYTES + 1} or more for this model"
        yield ("link", "mtu_bytes"), f"is {link.mtu_bytes}: a message would need over 65535 fragments", mend


def _churn(churn: ChurnSection, experiment: ExperimentSection) -> Iterator[Finding]:
    for number, absence in enumerate(churn.leave):
        at = ("churn", "leave", number)
        if absence.node >= experiment.nodes:
            yield (*at, "node"), f"there is no node {absence.node}", f"allowed 0 .. {experiment.nodes - 1}"
        if absence.from_ >= absence.to:
            yield (*at, "to"), f"is {absence.to}, not above from = {absence.from_}", "rounds from <= r < to are missed"


def _faults(faults: FaultsSection, experiment: ExperimentSection, link: LinkSection) -> Iterator[Finding]:
    named: list[tuple[Key, Sequence[int | str]]] = [(("groups", name), nodes) for name, nodes in faults.groups.items()]
    named += [(("event", i, "nodes"), event.nodes) for i, event in enumerate(faults.event)]
    complete = True
    for key, nodes in named:
        for wrong in sorted(node for node in nodes if isinstance(node, int) and node >= experiment.nodes):
            yield ("faults", *key), f"there is no node {wrong}", f"allowed 0 .. {experiment.nodes - 1}"
        for group in sorted(name for name in nodes if isinstance(name, str) and name not in faults.groups):
            complete = False
            known = ", ".join(faults.groups) or "none"
            yield ("faults", *key), f"there is no group {group!r}", f"groups of [faults.groups]: {known}"
    for number, event in enumerate(faults.event):
        at = ("faults", "event", number)
        if event.round >= experiment.rounds:
            yield (*at, "at"), f"is {event.at!r}", f"allowed 'round 0' .. 'round {experiment.rounds - 1}'"
        if not event.nodes and event.do != "heal":
            yield (*at, "nodes"), "is missing", f"name the nodes to {event.do}, by number or group"
        if event.do == "corrupt_link" and not link.auth:
            yield (*at, "do"), "would go unnoticed: frames have no tags", "set link.auth = true"
        if event.do != "corrupt_link" and event.rate is not None:
            yield (*at, "rate"), f"{event.do} has no such option", "remove it"
    if complete:
        for number, what, mend in effects(faults, experiment.rounds).problems:
            yield ("faults", "event", number), what, mend


_RULES: Final[dict[Callable[..., Iterator[Finding]], tuple[str, ...]]] = {
    _data: ("data",),
    _model: ("model",),
    _train: ("train",),
    _dropout: ("network", "train"),
    _rate: ("train", "schedule"),
    _policy: ("policy", "network", "data"),
    _topology: ("topology", "experiment"),
    _link: ("link", "network", "policy"),
    _churn: ("churn", "experiment"),
    _faults: ("faults", "experiment", "link"),
}
