"""Put the sections of an experiment together, and derive from them what a run needs."""

from __future__ import annotations

from typing import Any

from gossamer.experiment._dump import dump
from gossamer.experiment._faults import Fault, effects, schedule
from gossamer.experiment._network import network
from gossamer.experiment._section import Section
from gossamer.experiment._sections import (
    ChurnSection,
    DataSection,
    EmuSection,
    ExperimentSection,
    FaultsSection,
    GossipFlPolicy,
    LinkSection,
    ModelSection,
    PolicySection,
    ScheduleSection,
    TopologySection,
    TrainSection,
)
from gossamer.experiment._words import config_words, fifo_bound
from gossamer.spec import rng, topology
from gossamer.spec.constants import Init, PolicyKind
from gossamer.spec.nn import Model
from gossamer.spec.plan import Absence, Plan, Topology

_PARTS_SHOWN = 4


class Experiment(Section):
    """Hold one experiment, complete and consistent."""

    experiment: ExperimentSection
    data: DataSection
    model: ModelSection
    train: TrainSection
    schedule: ScheduleSection = ScheduleSection()
    policy: PolicySection
    topology: TopologySection
    link: LinkSection = LinkSection()
    churn: ChurnSection = ChurnSection()
    faults: FaultsSection = FaultsSection()
    emu: EmuSection = EmuSection()

    @property
    def network(self) -> Model:
        """Return the model of SPEC.md 3."""
        return network(self.model, self.train)

    @property
    def init(self) -> Init:
        """Tell where the parameters come from."""
        return Init.GIVEN if self.model.weights is not None else Init[self.model.init.upper()]

    def plan(self) -> Plan:
        """Return who is linked to whom in every round (SPEC.md 7)."""
        head, policy, link, churn = self.experiment, self.policy, self.link, self.churn
        faults = effects(self.faults, head.rounds)
        options = self.topology.model_dump(exclude={"kind", "redraw", "path"})
        return Plan(
            seed=head.seed,
            nodes=head.nodes,
            rounds=head.rounds,
            policy=PolicyKind[policy.name.upper()],
            topology=Topology.of(self.topology.kind, self.topology.redraw, **options),
            loss24=rng.probability24(link.loss),
            away24=rng.probability24(churn.away),
            span=churn.span,
            absences=(*(Absence(leave.node, leave.from_, leave.to) for leave in churn.leave), *faults.absences),
            partitions=tuple(faults.partitions),
            noises=tuple(faults.noises),
            reuse_after=policy.reuse_after if isinstance(policy, GossipFlPolicy) else 1,
            bandwidth_kbps=link.bandwidth_kbps,
            corruption24=rng.probability24(link.corruption),
            duplication24=rng.probability24(link.duplication),
            overtaking24=rng.probability24(link.overtaking),
            delay_us=round(1000 * link.delay_ms),
            jitter_us=round(1000 * link.jitter_ms),
        )

    def fault_schedule(self) -> list[Fault]:
        """Return what happens to nodes, in order of the rounds."""
        return schedule(self.faults)

    def config_words(
        self,
        test_count: int,
        shard_max: int,
        peers_max: int,
        feature_type: int,
        feature_scale: float,
        feature_offset: float,
    ) -> dict[str, int | float]:
        """Return the words of the experiment image: exactly `CONFIG_WORDS`, in order (SPEC.md 11)."""
        return config_words(self, test_count, shard_max, peers_max, feature_type, feature_scale, feature_offset)

    def resolved(self) -> Experiment:
        """Return the same experiment with every default that is computed written out."""
        peers_max = self.plan().peers_max if self.policy.fifo is None else 0
        fifo = fifo_bound(self.policy, self.experiment.nodes, peers_max)
        return self.model_copy(update={"policy": self.policy.model_copy(update={"fifo": fifo})})

    def values(self) -> dict[str, dict[str, Any]]:
        """Return section -> option -> value, without the options that do not apply."""
        unused = {name: set(section.unused()) for name, section in self if isinstance(section, Section)}
        values = self.model_dump(by_alias=True, exclude=unused, exclude_none=True)
        for section, tag in (("policy", "name"), ("topology", "kind")):
            values[section] = {tag: values[section][tag], **values[section]}
        layers = values["model"]["layers"]
        values["model"]["layers"] = [{"kind": x["kind"], **x} if isinstance(x, dict) else x for x in layers]
        return values

    def dumps(self) -> str:
        """Return TOML that loads as an equal experiment."""
        return dump(self.values())

    def warnings(self) -> list[str]:
        """Name what is allowed but rarely meant."""
        uses_links = self.policy.name not in {"epidemic", "fedavg", "local"}
        plan = self.plan()
        if not uses_links or plan.topology.changes or self.topology.kind == "full":
            return []
        parts = topology.components(plan.links(0), self.experiment.nodes)
        if len(parts) == 1:
            return []
        shown = [f"{{{_ranges(part)}}}" for part in parts[:_PARTS_SHOWN]]
        more = f" and {len(parts) - _PARTS_SHOWN} more" if len(parts) > _PARTS_SHOWN else ""
        return [
            f"topology: the graph falls into {len(parts)} parts that never meet: {', '.join(shown)}{more}; "
            "add links, or try another experiment.seed"
        ]


def _ranges(nodes: list[int]) -> str:
    """Write ascending ids shortly: 0-3, 7."""
    runs: list[list[int]] = []
    for node in nodes:
        if runs and node == runs[-1][1] + 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(texts[:8] + ["..."] * (len(texts) > 8))
