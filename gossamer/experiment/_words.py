"""Turn an experiment into the words of its image (SPEC.md 11)."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

from gossamer.experiment._checks import exact
from gossamer.experiment._sections import (
    DpsgdPolicy,
    EpidemicPolicy,
    GistPolicy,
    GossipFlPolicy,
    PolicySection,
    SegmentedGossipPolicy,
    TopkPolicy,
)
from gossamer.spec.constants import (
    CONFIG_WORDS,
    MILESTONES_MAX,
    LossReference,
    LrPolicy,
    Optimizer,
    PolicyKind,
    Reduce,
    Score,
    Spread,
    Success,
    Unit,
)

if TYPE_CHECKING:
    from gossamer.experiment._model import Experiment

Words = dict[str, int | float]

# What the words of other policies hold: threshold and bases as SPEC.md 6 reads them, the rest unused.
_NEUTRAL: Final[Words] = {
    **dict.fromkeys(("segments", "sends", "unit", "score", "reduce", "score_ema", "spread", "success"), 0),
    **dict.fromkeys(("pulls", "ratio24", "fanout", "top"), 0),
    **dict.fromkeys(("threshold", "base", "success_base"), 1),
}


def fifo_bound(policy: PolicySection, nodes: int, peers_max: int) -> int:
    """Return the places a node's FIFO needs (SPEC.md 6.9): no policy but gist lets messages wait for a later round."""
    if policy.fifo is not None:
        return policy.fifo
    match policy:
        case SegmentedGossipPolicy():
            return policy.segments * policy.pulls
        case EpidemicPolicy():
            return min(nodes - 1, 4 * policy.fanout + 8)
        case DpsgdPolicy() | TopkPolicy():
            return max(1, peers_max)
        case _:
            return 1


def config_words(
    experiment: Experiment,
    test_count: int,
    shard_max: int,
    peers_max: int,
    feature_type: int,
    feature_scale: float,
    feature_offset: float,
) -> Words:
    """Return exactly the keys of `CONFIG_WORDS`, in their order; reals are rounded to binary32."""
    head, train, link, network = experiment.experiment, experiment.train, experiment.link, experiment.network
    policy = experiment.policy
    words: Words = {
        "seed_lo": head.seed & 0xFFFFFFFF,
        "seed_hi": head.seed >> 32,
        "nodes": head.nodes,
        "rounds": head.rounds,
        **network.words(),
        "init": experiment.init,
        "batch": train.batch,
        "local_steps": train.local_steps,
        "optimizer": Optimizer[train.optimizer.upper()],
        "lr": train.lr,
        **{name: getattr(train, name) for name in ("momentum", "beta1", "beta2", "epsilon")},
        **dict.fromkeys(train.unused(), 0),
        "weight_decay": train.weight_decay,
        "val_permille": int(exact(experiment.data.validation) * 1000),
        "eval_every": head.eval_every,
        **_schedule_words(experiment),
        "policy": PolicyKind[policy.name.upper()],
        "bits": policy.bits,
        "error_feedback": policy.error_feedback,
        **_NEUTRAL,
        **_policy_words(policy, network.parameters),
        "fifo": fifo_bound(policy, head.nodes, peers_max),
        "max_norm": policy.max_norm,
        "mtu": link.mtu_bytes,
        "reassembly": link.reassembly,
        "auth": link.auth,
        "shard_max": shard_max,
        "peers_max": peers_max,
        "feature_type": feature_type,
        "feature_scale": feature_scale,
        "feature_offset": feature_offset,
        "test_count": test_count,
    }
    return {name: _binary32(words[name]) if kind == "f" else int(words[name]) for name, kind in CONFIG_WORDS.items()}


def _binary32(number: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)


def _numbered(name: str, values: tuple[int, ...], count: int) -> Words:
    return {f"{name}{i}": values[i] if i < len(values) else 0 for i in range(count)}


def _schedule_words(experiment: Experiment) -> Words:
    schedule, rounds = experiment.schedule, experiment.experiment.rounds

    def in_rounds(fractions: tuple[float, ...]) -> tuple[int, ...]:
        return tuple(math.ceil(exact(fraction) * rounds) for fraction in fractions)

    kinds = [LrPolicy[name.upper()] for name in schedule.policy.split("+")]
    return {
        "lr_policy": sum(kinds),
        "lr_floor": schedule.floor,
        "stair_count": len(schedule.milestones),
        **_numbered("stair_at", in_rounds(schedule.milestones), MILESTONES_MAX),
        "stair_factor": schedule.stair_factor,
        "loss_count": len(schedule.patience),
        **_numbered("loss_patience", in_rounds(schedule.patience), MILESTONES_MAX),
        "loss_factor": schedule.loss_factor,
        "loss_reference": LossReference[schedule.reference.upper()],
        "loss_ema": schedule.loss_ema,
    }


def _policy_words(policy: PolicySection, count: int) -> Words:
    match policy:
        case GistPolicy():
            return {
                "segments": policy.segments,
                "sends": policy.sends,
                "threshold": policy.threshold,
                "unit": Unit[policy.unit.upper()],
                "score": Score[policy.score.upper()],
                "reduce": Reduce[policy.reduce.upper()],
                "score_ema": policy.score_ema,
                "base": policy.base,
                "spread": Spread[policy.spread.upper()],
                "success": Success[policy.success.upper()],
                "success_base": policy.success_base,
            }
        case SegmentedGossipPolicy():
            return {"segments": policy.segments, "pulls": policy.pulls}
        case GossipFlPolicy():
            return {"ratio24": int(policy.ratio * 2**24)}
        case EpidemicPolicy():
            return {"fanout": policy.fanout}
        case TopkPolicy():
            return {"top": max(1, int(exact(policy.ratio) * count))}
        case _:
            return {}
