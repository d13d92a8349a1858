"""Read the words of an experiment image into the one typed object that the rules take (SPEC.md 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gossamer.spec.constants import (
    Init,
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
from gossamer.spec.nn import Model


@dataclass(frozen=True)
class Settings:
    """Hold an experiment's rules; reals are binary32, as on the node."""

    seed: int
    nodes: int
    rounds: int
    model: Model
    init: Init
    batch: int
    local_steps: int
    optimizer: Optimizer
    lr: np.float32
    momentum: np.float32
    beta1: np.float32
    beta2: np.float32
    epsilon: np.float32
    weight_decay: np.float32
    val_permille: int
    eval_every: int
    lr_policy: LrPolicy
    lr_floor: np.float32
    stair_at: tuple[int, ...]
    stair_factor: np.float32
    loss_patience: tuple[int, ...]
    loss_factor: np.float32
    loss_reference: LossReference
    loss_ema: np.float32
    policy: PolicyKind
    bits: int
    error_feedback: bool
    segments: int
    sends: int
    threshold: int
    fifo: int
    unit: Unit
    score: Score
    reduce: Reduce
    score_ema: np.float32
    base: np.float32
    spread: Spread
    success: Success
    success_base: np.float32
    pulls: int
    ratio24: int
    fanout: int
    top: int
    max_norm: np.float32
    mtu: int
    auth: bool

    @classmethod
    def from_words(cls, words: Mapping[str, int | float]) -> Settings:
        """Build from `CONFIG_WORDS` values (already range-checked by `gossamer.experiment`)."""

        def whole(name: str) -> int:
            return int(words[name])

        def real(name: str) -> np.float32:
            return np.float32(words[name])

        return cls(
            seed=whole("seed_lo") | whole("seed_hi") << 32,
            nodes=whole("nodes"),
            rounds=whole("rounds"),
            model=Model.from_words(words),
            init=Init(whole("init")),
            batch=whole("batch"),
            local_steps=whole("local_steps"),
            optimizer=Optimizer(whole("optimizer")),
            lr=real("lr"),
            momentum=real("momentum"),
            beta1=real("beta1"),
            beta2=real("beta2"),
            epsilon=real("epsilon"),
            weight_decay=real("weight_decay"),
            val_permille=whole("val_permille"),
            eval_every=whole("eval_every"),
            lr_policy=LrPolicy(whole("lr_policy")),
            lr_floor=real("lr_floor"),
            stair_at=tuple(whole(f"stair_at{i}") for i in range(whole("stair_count"))),
            stair_factor=real("stair_factor"),
            loss_patience=tuple(whole(f"loss_patience{i}") for i in range(whole("loss_count"))),
            loss_factor=real("loss_factor"),
            loss_reference=LossReference(whole("loss_reference")),
            loss_ema=real("loss_ema"),
            policy=PolicyKind(whole("policy")),
            bits=whole("bits"),
            error_feedback=bool(whole("error_feedback")),
            segments=whole("segments"),
            sends=whole("sends"),
            threshold=whole("threshold"),
            fifo=whole("fifo"),
            unit=Unit(whole("unit")),
            score=Score(whole("score")),
            reduce=Reduce(whole("reduce")),
            score_ema=real("score_ema"),
            base=real("base"),
            spread=Spread(whole("spread")),
            success=Success(whole("success")),
            success_base=real("success_base"),
            pulls=whole("pulls"),
            ratio24=whole("ratio24"),
            fanout=whole("fanout"),
            top=whole("top"),
            max_norm=real("max_norm"),
            mtu=whole("mtu"),
            auth=bool(whole("auth")),
        )
