"""Run an experiment in lockstep with the executable specification: the readable engine, vectorized over nodes.

The arithmetic is all in `gossamer.spec`; this is the order of a round (SPEC.md 4.3, 6, 7), written down once.
Every array's last axis is the node. N nodes, P parameters, M messages.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from gossamer.job import Job
from gossamer.place import Row
from gossamer.spec import local, nn
from gossamer.spec.constants import METRIC_WORDS, SERVER, FeatureType, PolicyKind, Score, Success, Unit
from gossamer.spec.lr import LearningRate
from gossamer.spec.merge import Arrivals, Fifo, Wave, merge, server_average, verified_weight
from gossamer.spec.nn import F32, I64, Bool, Dropout, Network
from gossamer.spec.optimizer import Steps
from gossamer.spec.policies import POLICIES, Memory, Round, fresh_memory, sharpen
from gossamer.spec.settings import Settings
from gossamer.spec.sharing import Messages, Parts, encode, fragments, frame_overhead
from gossamer.spec.units import Units
from twin_sim.state import StateFile

_CHUNK_NODES = 128  # nodes trained together: wide enough for numpy, small enough for the cache
_CHUNK_NODES_MIN = 32  # fewer are not worth a thread of their own
_COUNTERS = (
    *(name for name in METRIC_WORDS if name.split("_")[0] in {"frames", "bytes", "messages", "dropped"}),
    "frames_lost",
)


@dataclass(frozen=True)
class _Samples:
    """Hold all shards as one table: features [d, S], labels [S] and, by node, the columns to train and validate on."""

    features: F32
    labels: I64
    training: I64  # [longest, N], padded with 0
    validation: I64
    n_train: I64
    n_val: I64

    @classmethod
    def of(cls, job: Job, settings: Settings) -> _Samples:
        first, training, validation = 0, [], []
        for node, (x, _) in enumerate(job.shards):
            held_out, kept = local.split(settings.seed, node, len(x), settings.val_permille)
            validation.append(first + held_out)
            training.append(first + kept)
            first += len(x)
        features = to_float(job, np.concatenate([x for x, _ in job.shards]))
        labels = np.concatenate([y for _, y in job.shards]).astype(np.int64)
        return cls(features, labels, _pad(training), _pad(validation), _lengths(training), _lengths(validation))

    def take(self, columns: I64) -> tuple[F32, I64]:
        """Return features [d, ...] and labels of samples [...]."""
        return np.take(self.features, columns, axis=1), self.labels[columns]


def to_float(job: Job, x: np.ndarray) -> F32:
    """Turn stored features [n, d] into what the model reads, [d, n] (SPEC.md 3.3)."""
    if job.config["feature_type"] == FeatureType.F32:
        return np.ascontiguousarray(x.T, np.float32)
    scale, offset = np.float32(job.config["feature_scale"]), np.float32(job.config["feature_offset"])
    return np.ascontiguousarray(x.T).astype(np.float32) * scale + offset


def _lengths(rows: list[I64]) -> I64:
    return np.array([len(row) for row in rows], np.int64)


def _pad(rows: list[I64]) -> I64:
    result = np.zeros((max(1, int(_lengths(rows).max())), len(rows)), np.int64)
    for column, row in enumerate(rows):
        result[: len(row), column] = row
    return result


@dataclass
class _Round:
    """Collect what one round measures, each [N]."""

    train_loss: F32
    val_loss: F32
    val_correct: I64
    diverged: Bool
    average: F32 | None
    start: F32
    counters: dict[str, I64]


class LockstepPlace:
    """Simulate all nodes with numpy, bit for bit as the firmware core computes (`gossamer.place.Place`)."""

    def __init__(self, job: Job, run_dir: Path, threads: int | None = None) -> None:
        self._settings = settings = Settings.from_words(job.config)
        self._plan = job.plan
        self._state = StateFile(run_dir / "state" / "numpy.npz")
        self._model = settings.model
        self._initial, frozen = self._model.start(settings.seed, settings.init, job.given)
        self._network = Network(self._model, frozen)
        unit = settings.unit if settings.policy is PolicyKind.GIST else Unit.PARAMETER
        self._units = Units(self._model, unit)
        self._policy = POLICIES[settings.policy]()
        self._samples = _Samples.of(job, settings)
        self._test = to_float(job, job.test_x)[:, :, None], job.test_y.astype(np.int64)[:, None]
        self._threads = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads)
        self._graph: I64 | None = None  # the peers of the round, before anybody is told
        self._begin()

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the engine."""
        return {"engine": "numpy", "parameters": self._model.parameters}

    def _begin(self) -> None:
        """Set all that outlives a round to its start."""
        settings, nodes = self._settings, self._settings.nodes
        self._rounds_done = 0
        self._w = np.repeat(self._initial[:, None], nodes, axis=1)
        self._steps = Steps.fresh(settings, self._w)
        self._rate = LearningRate.fresh(settings)
        self._peers = np.full((max(1, self._plan.peers_max), nodes), -1, np.int64)
        self._memory = fresh_memory(settings, self._w, len(self._peers))
        self._fifo = Fifo(settings.fifo, np.zeros(nodes, np.int64))
        self._seq = np.zeros(nodes, np.int64)  # data frames sent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def weights(self) -> F32:
        """Return a copy of all weights, [P, N]."""
        return self._w.copy()

    # --- one round ---------------------------------------------------------------------------------------------

    def round(self, number: int) -> list[Row]:
        """Run one round; return a row a node."""
        with np.errstate(all="ignore"):
            return self._round(number)

    def _round(self, number: int) -> list[Row]:
        settings = self._settings
        present = self._plan.present(number)
        self._tell_peers(number, present)
        self._rate.begin_round(settings, number, present)
        rate = self._rate.lr.copy()
        result = self._train(number, present)
        self._rate.see_loss(settings, result.train_loss, present)
        state = self._share(number, present, result)
        test_loss, test_correct, tested = self._test_all(number, present)
        self._rounds_done = number + 1
        return self._rows(state, result, rate, test_loss, test_correct, tested)

    def _tell_peers(self, number: int, present: Bool) -> None:
        """Give the present nodes their peer list; where it changed, what counts its places starts anew."""
        if not self._plan.constant or self._graph is None:
            self._graph = np.full_like(self._peers, -1)
            for node, peers in enumerate(self._plan.peers(number)):
                self._graph[: len(peers), node] = peers
        changed = present & (self._graph != self._peers).any(axis=0)
        self._peers[:, changed] = self._graph[:, changed]
        for counts in (self._memory.send_counts, self._memory.cursor):
            if counts is not None:
                counts[..., changed] = 0

    def _train(self, number: int, present: Bool) -> _Round:
        nodes = self._settings.nodes
        keep_average = self._settings.policy is PolicyKind.GIST and self._settings.score >= Score.GRADIENT
        result = _Round(
            train_loss=np.full(nodes, np.nan, np.float32),
            val_loss=np.full(nodes, np.nan, np.float32),
            val_correct=np.zeros(nodes, np.int64),
            diverged=np.zeros(nodes, np.bool_),
            average=np.zeros_like(self._w) if keep_average else None,
            start=self._w.copy(),
            counters={name: np.zeros(nodes, np.int64) for name in _COUNTERS},
        )
        self._by_chunk(np.nonzero(present)[0], lambda who: self._train_chunk(number, who, result))
        return result

    def _by_chunk(self, who: I64, work: Callable[[I64], None]) -> None:
        """Do `work` for chunks of nodes, side by side."""

        def quietly(chunk: I64) -> None:
            with np.errstate(all="ignore"):
                work(chunk)

        if len(who):
            pieces = max(-(-len(who) // _CHUNK_NODES), min(self._threads, len(who) // _CHUNK_NODES_MIN), 1)
            list(self._pool.map(quietly, np.array_split(who, pieces)))

    def _train_chunk(self, number: int, who: I64, result: _Round) -> None:
        settings, samples = self._settings, self._samples
        w, start = self._w[:, who], self._w[:, who]
        steps = self._steps.of(who)
        average = None if result.average is None else np.zeros_like(w)
        positions = local.batch_positions(
            settings.seed, number, who, samples.n_train[who], settings.local_steps * settings.batch
        )
        total = np.zeros(len(who), np.float32)
        for step, batch in enumerate(np.split(samples.training[positions, who], settings.local_steps)):
            dropout = Dropout(settings.seed, number, step, who)
            loss, g = nn.gradient(self._network, w, *samples.take(batch), dropout)
            total = total + loss
            if average is not None:
                self._add_score(average, w, g)
            steps.take(settings, w, g, self._rate.lr[who])
        loss = total / np.float32(settings.local_steps)

        diverged: Bool = np.asarray(~np.isfinite(w).all(axis=0))
        w[:, diverged] = start[:, diverged]
        steps.reset(diverged)
        self._w[:, who] = w
        self._steps.put(who, steps)
        if result.average is not None and average is not None:
            average[:, diverged] = 0
            result.average[:, who] = average
        result.diverged[who] = diverged
        result.train_loss[who] = loss
        result.val_loss[who], result.val_correct[who] = self._validate(who, w)

    def _add_score(self, average: F32, w: F32, g: F32) -> None:
        """Move the score average by one step's gradient (SPEC.md 6.3)."""
        beta = self._settings.score_ema
        match self._settings.score:
            case Score.GRADIENT:
                term = np.abs(g)
            case Score.TAYLOR:
                term = np.abs(w * g)
            case _:
                term = g * g
        average[:] = beta * average + (np.float32(1) - beta) * term

    def _validate(self, who: I64, w: F32) -> tuple[F32, I64]:
        """Return loss and correct predictions of w [P, n] on the validation samples of the nodes `who`."""
        samples = self._samples
        return nn.evaluate(
            self._network, w, lambda place: samples.take(samples.validation[place][:, who]), samples.n_val[who]
        )

    def _test_all(self, number: int, present: Bool) -> tuple[F32, I64, I64]:
        settings = self._settings
        x, labels = self._test
        due = (number + 1) % settings.eval_every == 0 or number + 1 == settings.rounds
        counts = np.where(present & due, len(labels), 0)
        loss, correct = np.zeros(len(present), np.float32), np.zeros(len(present), np.int64)

        def work(who: I64) -> None:
            loss[who], correct[who] = nn.evaluate(
                self._network, self._w[:, who], lambda place: (x[:, place], labels[place]), counts[who]
            )

        self._by_chunk(np.nonzero(counts)[0], work)
        return loss, correct, counts

    # --- sharing -----------------------------------------------------------------------------------------------

    def _share(self, number: int, present: Bool, result: _Round) -> Round:
        settings, samples = self._settings, self._samples
        n_val = samples.n_val
        state = Round(
            settings=settings,
            units=self._units,
            number=number,
            present=present,
            w=self._w,
            start=result.start,
            average=result.average,
            success=np.where(
                n_val > 0, result.val_correct.astype(np.float32) / n_val.astype(np.float32), np.float32(1)
            ),
            n_train=samples.n_train,
            peers=self._peers,
            degree=(self._peers >= 0).sum(axis=0),
            memory=self._memory,
        )
        if settings.policy is PolicyKind.LOCAL:
            return state
        part = self._policy.part(state)
        parts, plain = self._policy.offer(state, part)
        if self._policy.pulls:
            messages = self._answer_pulls(state, self._policy.request(state), result)
        else:
            messages = self._policy.send(state, part)
        sent = messages.sent_parts(len(parts.payload_bytes), settings.nodes)
        self._policy.remember(state, plain, parts, sent)
        arrived, order = self._transmit(state, messages, parts.payload_bytes[messages.part, messages.src], result)
        if settings.policy is PolicyKind.FEDAVG:
            parts, messages, arrived, order = self._serve(state, messages, arrived, parts, result)
        self._deliver(state, parts, messages, arrived, order, result)
        return state

    def _transmit(self, state: Round, messages: Messages, size: I64, result: _Round) -> tuple[Bool, I64]:
        """Send messages of `size` bytes as frames over the lossy links; count them.

        Returns which arrived whole at a present node or the server, and each one's first sequence number, [M] each.
        """
        settings, nodes, plan = self._settings, self._settings.nodes, self._plan
        per_message = fragments(settings, size)
        before = np.cumsum(per_message) - per_message
        if (messages.src == SERVER).any():  # then all are the server's
            first_seq = (state.number * nodes + messages.dst) * per_message + 1
        else:
            first_of_source = before[np.searchsorted(messages.src, messages.src)]
            first_seq = self._seq[messages.src] + 1 + before - first_of_source
            self._seq += np.bincount(messages.src, per_message, nodes).astype(np.int64)

        of = np.repeat(np.arange(len(size)), per_message)
        fragment = np.arange(len(of)) - before[of]
        src, dst = messages.src[of], messages.dst[of]
        overhead = frame_overhead(settings)
        room = settings.mtu - overhead
        frame_bytes = overhead + np.minimum(room, size[of] - fragment * room)
        here = np.append(state.present, True)[np.where(dst == SERVER, nodes, dst)]
        frames = src, dst, state.number, first_seq[of] + fragment
        lost = plan.lost(*frames) | ~here
        corrupted = plan.corrupted(*frames) & ~lost
        gone = lost | corrupted
        twice = plan.duplicated(*frames) & ~gone

        losses = np.cumsum(gone)
        broken = losses - (losses - gone)[before[of]] > 0  # this fragment or an earlier one of its message is gone
        whole = np.ones(len(size), np.bool_)
        whole[of[gone]] = False
        accepted, stray = ~broken, broken & ~gone
        unfinished = accepted & (fragment == 0) & ~whole[of]

        counters = result.counters
        for name, node, what in (
            ("frames_sent", src, np.ones_like(of)),
            ("bytes_sent", src, frame_bytes),
            ("frames_lost", src, lost),
            ("frames_received", dst, accepted),
            ("bytes_received", dst, accepted * frame_bytes),
            ("dropped_tag", dst, corrupted),
            ("dropped_replay", dst, accepted & twice),
            ("dropped_reassembly", dst, stray * (1 + twice) + unfinished),
        ):
            real = node != SERVER
            counters[name] += np.bincount(node[real], what[real], nodes).astype(np.int64)
        return whole, first_seq

    def _answer_pulls(self, state: Round, wanted: Messages, result: _Round) -> Messages:
        """Carry the pulls; return the answers to those that arrived (SPEC.md 6.5)."""
        pair = wanted.src * self._settings.nodes + wanted.dst
        first, of = np.unique(pair, return_index=True, return_inverse=True)[1:]
        pulls = Messages(wanted.src[first], wanted.dst[first], wanted.part[first])
        arrived, _ = self._transmit(state, pulls, 2 + 2 * np.bincount(of, minlength=len(first)), result)
        heard = arrived[of] if len(of) else np.zeros(0, np.bool_)
        src, dst, part = wanted.dst[heard], wanted.src[heard], wanted.part[heard]
        order = np.lexsort((dst, part, src))
        return Messages(src[order], dst[order], part[order])

    def _serve(
        self, state: Round, messages: Messages, arrived: Bool, parts: Parts, result: _Round
    ) -> tuple[Parts, Messages, Bool, I64]:
        """Average at the virtual server and send the result to the present nodes (SPEC.md 6.11)."""
        settings = self._settings
        heard = messages.src[arrived]
        none = np.zeros(0, np.int64)
        if not len(heard):
            return parts, Messages.none(), np.zeros(0, np.bool_), none
        average = server_average(parts.values[:, heard], parts.weight[heard])[:, None]
        whole = np.zeros(average.shape, np.int16)
        served = encode(settings, self._units, whole, 1, average, np.ones(1, np.float32), False)
        dst = np.nonzero(state.present)[0]
        down = Messages(np.full(len(dst), SERVER), dst, np.zeros(len(dst), np.int64))
        size = np.full(len(dst), int(served.payload_bytes[0, 0]))
        arrived, first_seq = self._transmit(state, down, size, result)
        return served, replace(down, src=np.zeros_like(dst)), arrived, first_seq

    def _deliver(
        self, state: Round, parts: Parts, messages: Messages, arrived: Bool, first_seq: I64, result: _Round
    ) -> None:
        """Queue what arrived, in the order of SPEC.md 7.6, and merge where enough waits."""
        settings, nodes, policy = self._settings, self._settings.nodes, self._policy
        rejected = arrived & parts.rejected[messages.part, messages.src]
        result.counters["messages_rejected"] += np.bincount(messages.dst[rejected], minlength=nodes)
        rows = np.nonzero(arrived & ~rejected)[0]
        key = self._plan.delivery_key(messages.src, state.number)
        rows = rows[np.lexsort((first_seq[rows], key[rows], messages.dst[rows]))]
        src = messages.src[rows]
        arrivals = Arrivals(messages.dst[rows], src, messages.part[rows], parts.weight[src], parts.values, parts.part)

        count, evicted = self._fifo.lengths(arrivals)
        merging = state.present & (count >= max(1, settings.threshold))
        result.counters["messages_evicted"] += evicted
        result.counters["messages_merged"] += np.where(merging, count, 0)

        weights, total = [], np.zeros(nodes, np.float32)
        for wave in self._fifo.waves(arrivals, merging):
            if settings.policy is PolicyKind.GIST and settings.success is Success.VERIFIED:
                weights.append(sharpen(settings, self._verify(wave, result.val_loss)))
            else:
                weights.append(policy.message_weight(state, wave.nodes, wave.weight))
            total[wave.nodes] += weights[-1]
        weighed = (
            replace(wave, weight=a) for wave, a in zip(self._fifo.waves(arrivals, merging), weights, strict=True)
        )
        self._w = merge(self._w, policy.own_weight(state, total), weighed)
        self._fifo.keep(arrivals, ~merging)

    def _verify(self, wave: Wave, val_loss: F32) -> F32:
        w = self._w[:, wave.nodes]
        trial = np.where(wave.covers, (w + wave.values) * np.float32(0.5), w)
        loss, _ = self._validate(wave.nodes, trial)
        return verified_weight(val_loss[wave.nodes], loss)

    # --- results -----------------------------------------------------------------------------------------------

    def _rows(
        self, state: Round, result: _Round, rate: F32, test_loss: F32, test_correct: I64, tested: I64
    ) -> list[Row]:
        columns: dict[str, Any] = {
            "train_loss": result.train_loss,
            "val_loss": result.val_loss,
            "val_correct": result.val_correct,
            "val_count": np.where(state.present, self._samples.n_val, 0),
            "test_loss": np.where(state.present, test_loss, np.float32(np.nan)),
            "test_correct": test_correct,
            "test_count": tested,
            "lr": np.where(state.present, rate, np.float32(np.nan)),
            **result.counters,
            "diverged": result.diverged.astype(np.int64),
        }
        losses = ("train_loss", "val_loss", "test_loss")
        columns |= {name: np.where(np.isfinite(columns[name]), columns[name], np.float32(np.nan)) for name in losses}
        listed = {name: column.tolist() for name, column in columns.items()}
        crcs = list(self._crcs())
        rows: list[Any] = [
            {"node": node, "present": bool(here), "weights_crc": crcs[node][0], "tensor_crcs": crcs[node][1]}
            | {name: column[node] for name, column in listed.items()}
            for node, here in enumerate(state.present)
        ]
        return rows

    def _crcs(self) -> Iterator[tuple[int, list[int]]]:
        """Give the CRC of each node's weights and of each of its tensors (SPEC.md 10.2)."""
        for flat in np.ascontiguousarray(self._w.T):
            yield zlib.crc32(flat), [zlib.crc32(flat[place]) for _, place in self._model.tensors]

    # --- interrupted and continued -----------------------------------------------------------------------------

    def _arrays(self) -> dict[str, np.ndarray]:
        """Name all that outlives a round."""
        found: dict[str, Any] = {"w": self._w, "peers": self._peers, "seq": self._seq}
        found |= {f"steps_{name}": array for name, array in self._steps.arrays().items()}
        found |= {f"rate_{item.name}": getattr(self._rate, item.name) for item in fields(LearningRate)}
        found |= {f"memory_{item.name}": getattr(self._memory, item.name) for item in fields(Memory)}
        found |= {"fifo_held": self._fifo.held}
        for name in ("values", "covers", "weight"):
            found |= {f"fifo_{name}_{place}": array for place, array in enumerate(getattr(self._fifo, name))}
        return {name: array for name, array in found.items() if array is not None}

    def save(self) -> None:
        """Write the state to the run folder, whole or not at all."""
        self._state.save({"rounds_done": np.array(self._rounds_done), **self._arrays()})

    def start(self, committed: int) -> int:
        """Begin, or continue the run that has `committed` rounds on record; return the rounds that stand."""
        self._begin()
        stored = self._state.load() if committed else None
        if stored is None or int(stored["rounds_done"]) > committed:
            return 0
        self._restore(stored)
        self._rounds_done = int(stored["rounds_done"])
        return self._rounds_done

    def _restore(self, stored: dict[str, np.ndarray]) -> None:
        self._w = stored["w"]
        self._steps = Steps(**{item.name: stored.get(f"steps_{item.name}") for item in fields(Steps)})
        self._peers, self._seq = stored["peers"], stored["seq"]
        self._rate = LearningRate(**{item.name: stored[f"rate_{item.name}"] for item in fields(LearningRate)})
        self._memory = Memory(**{item.name: stored.get(f"memory_{item.name}") for item in fields(Memory)})
        places = sum(name.startswith("fifo_values_") for name in stored)
        self._fifo = Fifo(
            self._settings.fifo,
            stored["fifo_held"],
            *([stored[f"fifo_{name}_{place}"] for place in range(places)] for name in ("values", "covers", "weight")),
        )
