"""Define the sections of an experiment file: every option with its type, range and default."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from gossamer.experiment._layers import Layers, Trainable
from gossamer.experiment._section import (
    U32_MAX,
    Beta,
    Count,
    Count16,
    Ema,
    Factor,
    Fraction01,
    NodeId,
    NonNegative,
    Positive,
    Probability,
    Real,
    Section,
)
from gossamer.spec.constants import MILESTONES_MAX, MTU_MAX, MTU_MIN, NODE_ID_MAX

NODES_MAX = NODE_ID_MAX + 1
Bits = Literal[32, 16, 8, 4, 2, 1]
Fractions = Annotated[tuple[Fraction01, ...], Field(max_length=MILESTONES_MAX)]


def _at_round(text: str) -> str:
    if not re.fullmatch(r"round (0|[1-9]\d{0,8})", text):
        raise ValueError("no time; allowed 'round 7'")
    return text


class ExperimentSection(Section):
    """[experiment]."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    nodes: Annotated[int, Field(ge=2, le=NODES_MAX)]
    rounds: Count
    eval_every: Count = 1


class DataSection(Section):
    """[data]: which samples, and how they are dealt to the nodes."""

    set: Annotated[str, Field(min_length=1)]
    partition: Literal["iid", "dirichlet", "labels", "quantity"] = "iid"
    alpha: Annotated[float, Field(gt=0)] = 0.5  # dirichlet, quantity
    labels_per_node: Annotated[int, Field(ge=1, le=256)] = 2  # labels
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.2  # steps of 0.001

    def unused(self) -> tuple[str, ...]:
        """Name the options that the chosen partition has no use for."""
        uses = PARTITION_OPTIONS[self.partition]
        return tuple(sorted({key for keys in PARTITION_OPTIONS.values() for key in keys} - uses))


PARTITION_OPTIONS: dict[str, frozenset[str]] = {
    "iid": frozenset(),
    "dirichlet": frozenset({"alpha"}),
    "labels": frozenset({"labels_per_node"}),
    "quantity": frozenset({"alpha"}),
}


class ModelSection(Section):
    """[model]: widths of dense layers, input first, classes last; or an input shape and a table for each layer."""

    input: tuple[Count16, Count16, Count16] | None = None  # height, width, channels
    layers: Layers
    init: Literal["glorot", "he"] = "glorot"
    weights: Annotated[str, Field(min_length=1)] | None = None  # a file of all parameters to start from

    def unused(self) -> tuple[str, ...]:
        """Name the options that have no meaning beside the others given."""
        return ("init",) if self.weights is not None else ()


class TrainSection(Section):
    """[train]."""

    batch: Count16
    local_steps: Count16
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive
    momentum: Annotated[Real, Field(ge=0, lt=1)] = 0.0  # sgd
    beta1: Beta = 0.9  # adam; so the next two
    beta2: Beta = 0.999
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    trainable: Trainable = "all"  # "all", how many of the last layers with parameters, or the names of layers

    def unused(self) -> tuple[str, ...]:
        """Name the options that have no meaning beside the others given."""
        return ("momentum",) if self.optimizer == "adam" else ("beta1", "beta2", "epsilon")


class ScheduleSection(Section):
    """[schedule]: milestones and patience are fractions of `rounds`."""

    policy: Literal["constant", "adastair", "adaloss", "adastair+adaloss"] = "constant"
    milestones: Fractions = (0.40, 0.65, 0.75)
    stair_factor: Factor = 8.0
    floor: Positive = 1e-5
    patience: Fractions = (0.30, 0.20, 0.20, 0.10)
    loss_factor: Factor = 2.0
    reference: Literal["mean", "best", "ema"] = "mean"
    loss_ema: Ema = 0.1


class _Policy(Section):
    bits: Bits = 32
    error_feedback: bool = False
    fifo: Count16 | None = None  # None: the computed bound
    max_norm: Positive = 1000.0


class GistPolicy(_Policy):
    """[policy] name = "gist"."""

    name: Literal["gist"]
    segments: Count16 = 5
    sends: Count16 = 7
    threshold: Count16 = 5
    fifo: Count16 = 10
    unit: Literal["parameter", "kernel", "channel", "layer"] = "parameter"
    score: Literal["weight", "update", "gradient", "taylor", "fisher"] = "update"
    reduce: Literal["l2", "mean"] = "l2"
    score_ema: Ema = 0.9
    base: Factor = 1.0
    spread: Literal["uniform_with_replacement", "uniform_without_replacement", "balanced", "round_robin"] = (
        "uniform_with_replacement"
    )
    success: Literal["sender", "equal", "verified"] = "sender"
    success_base: Factor = 1.0


class SegmentedGossipPolicy(_Policy):
    """[policy] name = "segmented_gossip"."""

    name: Literal["segmented_gossip"]
    segments: Count16 = 5
    pulls: Count16 = 2


class GossipFlPolicy(_Policy):
    """[policy] name = "gossipfl"."""

    name: Literal["gossipfl"]
    ratio: Fraction01 = 0.5
    reuse_after: Count = 2


class DpsgdPolicy(_Policy):
    """[policy] name = "dpsgd"."""

    name: Literal["dpsgd"]


class EpidemicPolicy(_Policy):
    """[policy] name = "epidemic"."""

    name: Literal["epidemic"]
    fanout: Count16 = 3


class TopkPolicy(_Policy):
    """[policy] name = "topk"."""

    name: Literal["topk"]
    ratio: Fraction01 = 0.1


class FedavgPolicy(_Policy):
    """[policy] name = "fedavg"."""

    name: Literal["fedavg"]


class LocalPolicy(_Policy):
    """[policy] name = "local"."""

    name: Literal["local"]


PolicySection = Annotated[
    GistPolicy
    | SegmentedGossipPolicy
    | GossipFlPolicy
    | DpsgdPolicy
    | EpidemicPolicy
    | TopkPolicy
    | FedavgPolicy
    | LocalPolicy,
    Field(discriminator="name"),
]


class _Topology(Section):
    redraw: bool = False


class RingTopology(_Topology):
    """[topology] kind = "ring"."""

    kind: Literal["ring"]


class LineTopology(_Topology):
    """[topology] kind = "line"."""

    kind: Literal["line"]


class StarTopology(_Topology):
    """[topology] kind = "star": node 0 is the hub."""

    kind: Literal["star"]


class FullTopology(_Topology):
    """[topology] kind = "full"."""

    kind: Literal["full"]


class TorusTopology(_Topology):
    """[topology] kind = "torus": rows times columns; the squarest by default."""

    kind: Literal["torus"]
    rows: Count16 | None = None
    columns: Count16 | None = None


class RegularTopology(_Topology):
    """[topology] kind = "regular": a random graph in which every node has `degree` neighbours."""

    kind: Literal["regular"]
    degree: Count16 = 4


class ErdosRenyiTopology(_Topology):
    """[topology] kind = "erdos_renyi": every pair is linked with `probability`."""

    kind: Literal["erdos_renyi"]
    probability: Probability


class WattsStrogatzTopology(_Topology):
    """[topology] kind = "watts_strogatz": a ring lattice, each link re-wired with probability `rewire`."""

    kind: Literal["watts_strogatz"]
    degree: Count16 = 4
    rewire: Probability = 0.3


class GeometricTopology(_Topology):
    """[topology] kind = "geometric": points in the unit square, linked up to `radius`."""

    kind: Literal["geometric"]
    radius: Annotated[float, Field(gt=0, le=1.5)]


class TreeTopology(_Topology):
    """[topology] kind = "tree": every node has up to `branching` children."""

    kind: Literal["tree"]
    branching: Count16 = 2


class ClusteredTopology(_Topology):
    """[topology] kind = "clustered": dense groups in a ring, joined by few links."""

    kind: Literal["clustered"]
    clusters: Count16 = 4
    inside: Probability = 1.0  # probability of a link within a cluster
    bridges: Count16 = 1  # links between a cluster and the next


Link = tuple[NodeId, NodeId]


class FileTopology(_Topology):
    """[topology] kind = "file": links from a file of lines `a b`, or written out."""

    kind: Literal["file"]
    path: str | None = None
    links: tuple[Link, ...] | None = None


TopologySection = Annotated[
    RingTopology
    | LineTopology
    | StarTopology
    | FullTopology
    | TorusTopology
    | RegularTopology
    | ErdosRenyiTopology
    | WattsStrogatzTopology
    | GeometricTopology
    | TreeTopology
    | ClusteredTopology
    | FileTopology,
    Field(discriminator="kind"),
]


Delay = Annotated[float, Field(ge=0, le=60_000)]


class LinkSection(Section):
    """[link]."""

    loss: Probability = 0.0  # of a data frame; so the next three
    corruption: Probability = 0.0
    duplication: Probability = 0.0
    overtaking: Probability = 0.0  # of arriving without delay
    delay_ms: Delay = 0.0
    jitter_ms: Delay = 0.0  # at most delay_ms
    mtu_bytes: Annotated[int, Field(ge=MTU_MIN, le=MTU_MAX)] = 1024
    auth: bool = True
    reassembly: Annotated[int, Field(ge=1, le=64)] = 2  # incomplete messages a node can hold
    bandwidth_kbps: tuple[Count, Count] = (1000, 1000)  # least and greatest


class Absence(Section):
    """[churn] leave = [{node, from, to}]: away in rounds from <= r < to."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    node: NodeId
    from_: Annotated[int, Field(ge=0, le=U32_MAX, alias="from")]
    to: Count


class ChurnSection(Section):
    """[churn]."""

    away: Probability = 0.0  # of beginning an absence in a round
    span: Count = 1  # rounds
    leave: tuple[Absence, ...] = ()


def _broker(text: str) -> str:
    if not re.fullmatch(r"none|auto|mqtts?://[^\s/]+/?", text):
        raise ValueError("no broker; allowed none, auto, or mqtt://host:port")
    return text


class EmuSection(Section):
    """[emu]: how emulated nodes are run and reached; in lockstep no option of it changes a bit."""

    backend: Literal["process", "docker"] = "process"
    on_loss: Literal["continue", "stop"] = "continue"  # without a node that ends, falls silent or fails
    patience_s: Annotated[float, Field(gt=0, le=86400)] = 600.0  # with a silent node; an emulated one is slow
    broker: Annotated[str, AfterValidator(_broker)] = "none"
    shaping: Literal["none", "gateway", "netem"] = "none"  # who makes frames take the time that links take
    memory_mib: Annotated[int, Field(ge=32, le=65536)] = 128  # of a container
    cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0  # of a container


GroupName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]


class FaultEvent(Section):
    """[[faults.event]]: what happens ahead of a round.

    kill takes a node's power until restart; pause stops it until resume; restart of a running node takes its power for
    a moment. partition cuts nodes off from all others and corrupt_link spoils frames from and to them, until heal
    (without nodes: of everything).
    """

    at: Annotated[str, AfterValidator(_at_round)]  # "round 7"
    do: Literal["kill", "restart", "pause", "resume", "partition", "corrupt_link", "heal"]
    nodes: tuple[NodeId | GroupName, ...] = ()
    rate: Probability | None = None  # corrupt_link: of spoiling a frame; 0.5 by default

    @property
    def round(self) -> int:
        """Return the round ahead of which it happens."""
        return int(self.at.removeprefix("round "))


class FaultsSection(Section):
    """[faults]: groups of nodes by name, and what happens to nodes when."""

    groups: dict[GroupName, Annotated[tuple[NodeId, ...], Field(min_length=1)]] = {}
    event: tuple[FaultEvent, ...] = ()
