"""The core's rates, units, sharing and merging against hand-worked cases and slow readings of SPEC.md, node by node.

A learning rate of 0 keeps the weights at their start, so that what is sent and merged can be written down.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from gossamer.spec import fmath, indexing, nn, quant, rng
from gossamer.spec.constants import (
    SERVER,
    Coding,
    Init,
    LossReference,
    LrPolicy,
    MessageType,
    PolicyKind,
    Reduce,
    Score,
    Spread,
    Stream,
    Success,
    Unit,
)
from gossamer.spec.local import split
from gossamer.spec.messages import Pull, Segment
from tests.core import naive_nn
from tests.core.probe import OK, Node, image_of, library, samples, words

F32 = np.float32
NAN, INF = float("nan"), float("inf")
DIMS = (6, 5, 4, 3)
MODEL = nn.Model.dense(DIMS)
P = MODEL.parameters
SEED = 5
SEGMENT = MessageType.SEGMENT


# --- learning rates ------------------------------------------------------------------------------------------------


def rates(losses: list[float], **changes: Any) -> tuple[list[float], list[float]]:
    """Return the rates used in, and left after, rounds 0, 1, ..."""
    ffi, lib = library()
    image = image_of(words(**changes))
    used, after = ffi.new("float[]", len(losses)), ffi.new("float[]", len(losses))
    lib.probe_rates(image, len(image), ffi.new("float[]", losses), len(losses), used, after)
    return list(used), list(after)


STAIRS = {
    "lr": 0.5,
    "lr_policy": LrPolicy.ADASTAIR,
    "stair_count": 2,
    "stair_at0": 2,
    "stair_at1": 5,
    "stair_factor": 2.0,
}


def test_stairs_by_hand() -> None:
    assert rates([9.0] * 7, **STAIRS)[0] == [0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125]
    assert rates([9.0] * 6, **STAIRS, lr_floor=0.1875)[0] == [0.5, 0.5, 0.25, 0.25, 0.25, 0.1875]
    together = STAIRS | {"stair_at1": 2}  # two milestones in one round
    assert rates([9.0] * 3, **together)[0] == [0.5, 0.5, 0.125]
    assert rates([9.0] * 3, **STAIRS | {"lr_policy": LrPolicy.CONSTANT})[1] == [0.5] * 3


@pytest.mark.parametrize(
    ("reference", "losses", "after"),
    [
        # Means of the earlier losses: 1, 0.75, 0.77, 0.8, ...; patience 1, then 0, then none.
        (LossReference.MEAN, [1.0, 0.5, 0.8, 0.9, 0.9, 9.0, 9.0], [1, 1, 1, 0.5, 0.25, 0.25, 0.25]),
        # 0.5 again is not less than the best.
        (LossReference.BEST, [1.0, 0.5, 0.6, 0.5, 0.4, 0.5], [1, 1, 1, 0.5, 0.5, 0.25]),
        # Averages with 0.5: 1, 0.75, 0.775, 0.7375, 0.76875; 0.7 is good and starts the count anew.
        (LossReference.EMA, [1.0, 0.5, 0.8, 0.7, 0.8, 0.9], [1, 1, 1, 1, 1, 0.5]),
        # What is not finite is bad and leaves no trace in the reference; the first finite loss is good.
        (LossReference.MEAN, [NAN, 3.0, INF, 2.0, NAN, NAN], [1, 1, 1, 1, 1, 0.5]),
    ],
)
def test_patience_by_hand(reference: LossReference, losses: list[float], after: list[float]) -> None:
    options = {"lr": 1.0, "lr_policy": LrPolicy.ADALOSS, "loss_count": 2, "loss_patience0": 1, "loss_patience1": 0}
    found = rates(losses, **options, loss_factor=2.0, loss_reference=reference, loss_ema=0.5)
    assert found[1] == after
    assert found[0] == [1.0, *after[:-1]]


def test_both_act_on_the_same_rate() -> None:
    options = STAIRS | {"lr_policy": LrPolicy.ADASTAIR | LrPolicy.ADALOSS, "loss_count": 1, "loss_factor": 4.0}
    assert rates([1.0, 2.0, 3.0], **options) == ([0.5, 0.5, 0.0625], [0.5, 0.125, 0.0625])


def units_of(kind: Unit) -> list[list[int]]:
    """List each unit's parameters, of the model of DIMS."""
    return naive_nn.units((1, 1, DIMS[0]), naive_nn.perceptron(*DIMS), kind)


# --- units ---------------------------------------------------------------------------------------------------------


def test_units_sort_by_key_then_number() -> None:
    ffi, lib = library()
    draw = np.random.default_rng(6)
    for count in (0, 1, 2, 3, 10, 1000):
        keys = draw.choice(np.array([0, 1e-45, 0.5, 1, 2, np.inf], F32), count)  # many ties
        for held in (keys, None):
            numbers = ffi.new("uint32_t[]", draw.permutation(count).tolist() or [0])
            given = ffi.new("float[]", held.tolist() or [0.0]) if held is not None else ffi.NULL
            lib.gs_units_sort(numbers, count, given)
            expected = sorted(range(count), key=lambda u: (-held[u] if held is not None else 0, u))  # noqa: B023
            assert list(numbers)[:count] == expected


# --- what is sent --------------------------------------------------------------------------------------------------


def share_draw(node: int, round_: int, index: int) -> int:
    return int(rng.draws(SEED, Stream.SHARE, round_, node, index))


def part_of(payload: bytes, units: list[list[int]] | None, count: int = 0) -> tuple[Segment, list[int], np.ndarray]:
    """Return a message, its coordinates (where it has an index) and its values."""
    segment = Segment.parse(payload)
    coordinates = []
    if units is not None:
        assert segment.coding in (Coding.BITMAP, Coding.DELTA)
        numbers = indexing.decode(segment.coding, segment.index, len(units))
        assert indexing.encode(numbers, len(units)) == (segment.coding, segment.index)
        coordinates = [p for number in numbers for p in units[number]]
    count = count or len(coordinates) or len(segment.values) * 8 // segment.bits
    fields = quant.unpack(segment.values, count, segment.bits)
    return segment, coordinates, quant.dequantize(fields, F32(segment.scale), segment.bits)


def seen_as(values: np.ndarray, bits: int) -> np.ndarray:
    """Return what a receiver reads of a part's values (SPEC.md 5)."""
    scale = quant.scale_of(values, bits)
    return quant.dequantize(quant.quantize(values, scale, bits), scale, bits)


def total(terms: Iterable[np.floating[Any]]) -> F32:
    sum_ = F32(0)
    for term in terms:
        sum_ = sum_ + term
    return sum_


class SlowGist:
    """Read 6.4 for one node, with Python loops; keeps what outlives a round."""

    def __init__(self, config: dict[str, Any], peers: list[int]) -> None:
        self.config, self.peers = config, peers
        self.counts = dict.fromkeys(peers, 0)
        self.cursor = 0

    def importance(self, units: list[list[int]], score: np.ndarray) -> list[F32]:
        result = []
        for unit in units:
            if len(unit) == 1:
                result.append(score[unit[0]])
            elif self.config["reduce"] == Reduce.L2:
                result.append(fmath.sqrt(np.array([total(score[p] * score[p] for p in unit)]))[0])
            else:
                result.append(total(score[p] for p in unit) / F32(len(unit)))
        return result

    def sends(self, round_: int, score: np.ndarray) -> tuple[list[tuple[int, int]], list[set[int]]]:
        """Return (part, receiver) in order of sending, and the units of each segment."""
        config, units, count = self.config, units_of(Unit(self.config["unit"])), self.config["segments"]
        importance = self.importance(units, score)
        ranked = sorted(range(len(units)), key=lambda u: (-importance[u], u))
        members: list[list[int]] = [[] for _ in range(count)]
        before = 0
        for unit in ranked:
            members[min(count - 1, before * count // P)].append(unit)
            before += len(units[unit])
        m = [total(importance[u] for u in inside) / F32(len(inside)) if inside else F32(0) for inside in members]
        sum_ = total(m)
        if sum_ == 0 or not np.isfinite(sum_):
            m = [F32(1) if inside else F32(0) for inside in members]
            sum_ = total(m)
        p = [value / sum_ for value in m]
        if config["base"] > 1:
            log_base = fmath.log(np.array([config["base"]], F32))[0]
            p = [fmath.exp(np.array([x * log_base]))[0] if members[k] else F32(0) for k, x in enumerate(p)]
        sum_ = total(p)
        drawn = []
        for j in range(config["sends"]):
            x = F32((share_draw(0, round_, 2 * j) >> 8) * 2.0**-24) * sum_
            hits = [k for k in range(count) if members[k] and total(p[: k + 1]) > x]
            segment = hits[0] if hits else max(k for k in range(count) if members[k])
            drawn.append((segment, j, self.receiver(j, share_draw(0, round_, 2 * j + 1))))
        return [(k, to) for k, _, to in sorted(drawn)], [set(inside) for inside in members]

    def receiver(self, j: int, u: int) -> int:
        peers = self.peers
        match self.config["spread"]:
            case Spread.UNIFORM_WITH_REPLACEMENT:
                return peers[u * len(peers) >> 32]
            case Spread.UNIFORM_WITHOUT_REPLACEMENT:
                t = j % len(peers)
                if t == 0:
                    self.deck = list(peers)
                other = t + (u * (len(peers) - t) >> 32)
                self.deck[t], self.deck[other] = self.deck[other], self.deck[t]
                return self.deck[t]
            case Spread.BALANCED:
                least = [peer for peer in peers if self.counts[peer] == min(self.counts.values())]
                peer = least[u * len(least) >> 32]
                self.counts[peer] += 1
                return peer
            case _:
                self.cursor += 1
                return peers[(self.cursor - 1) % len(peers)]


GISTS: list[dict[str, Any]] = [
    {},
    {"unit": Unit.KERNEL, "spread": Spread.UNIFORM_WITHOUT_REPLACEMENT, "sends": 8},
    {"unit": Unit.KERNEL, "reduce": Reduce.MEAN, "spread": Spread.BALANCED, "sends": 7, "bits": 8},
    {"unit": Unit.CHANNEL, "spread": Spread.ROUND_ROBIN, "sends": 7, "segments": 5, "base": 100.0, "bits": 4},
    {"unit": Unit.CHANNEL, "score": Score.WEIGHT, "segments": 30, "sends": 20, "bits": 2},
    {"unit": Unit.LAYER, "segments": 7, "sends": 10, "bits": 1, "base": 10.0},
    {"segments": P, "sends": 30, "bits": 16, "spread": Spread.BALANCED},
    {"lr": 0.0, "segments": 4, "sends": 12},  # nothing moved: all segments alike
]


@pytest.mark.parametrize("changes", GISTS)
def test_gist_sends_what_a_slow_reading_sends(changes: dict[str, Any]) -> None:
    config = words(**changes)
    units = units_of(Unit(int(config["unit"])))
    with Node(config) as node:
        assert node.start() == OK
        node.ready([1, 2, 3])
        slow = SlowGist(config, [1, 2, 3])
        for round_ in range(4):
            if round_ == 3:  # a new list: counts and cursor begin anew
                node.peers([2, 3])
                slow = SlowGist(config, [2, 3])
            start = node.weights
            messages = node.train(round_)
            w = node.weights
            score = np.abs(w if config["score"] == Score.WEIGHT else w - start)
            expected, members = slow.sends(round_, score)
            parts = [(part_of(payload, units), frame) for frame, payload in messages]
            assert [(segment.part, frame.dst) for (segment, _, _), frame in parts] == expected
            report = node.commit(round_).words
            for (segment, coordinates, values), _ in parts:
                assert coordinates == [p for u in sorted(members[segment.part]) for p in units[u]]
                assert values.tobytes() == seen_as(w[coordinates], int(config["bits"])).tobytes()
                assert F32(segment.weight) == F32(report["val_correct"]) / F32(report["val_count"])
            assert report["frames_sent"] == len(messages)


@pytest.mark.parametrize(
    ("changes", "receivers", "weight"),
    [
        ({"policy": PolicyKind.DPSGD}, [1, 2, 3], 3.0),
        ({"policy": PolicyKind.FEDAVG}, [1, 2, 3], 15.0),
        ({"policy": PolicyKind.LOCAL}, [], 0.0),
        ({"policy": PolicyKind.EPIDEMIC, "fanout": 9}, [1, 2, 3], 1.0),
    ],
)
def test_whole_models(changes: dict[str, Any], receivers: list[int], weight: float) -> None:
    with Node(words(**changes, bits=8)) as node:
        assert node.start() == OK
        messages = node.ready([1, 2, 3]).train(0)
        assert [frame.dst for frame, _ in messages] == receivers
        for _, payload in messages:
            segment, _, values = part_of(payload, None)
            assert (segment.coding, segment.part, segment.weight, segment.index) == (Coding.RANGE, 0, weight, b"")
            assert values.tobytes() == seen_as(node.weights, 8).tobytes()


def slow_choose(node: int, round_: int, n: int, k: int, index0: int) -> list[int]:
    taken: list[int] = []
    wanted = min(n, k)
    for i in range(wanted):
        j = n - wanted + i
        t = share_draw(node, round_, index0 + i) * (j + 1) >> 32
        taken.append(j if t in taken else t)
    return sorted(taken)


def test_epidemic_chooses_by_floyd() -> None:
    with Node(words(policy=PolicyKind.EPIDEMIC, fanout=2)) as node:
        assert node.start() == OK
        node.ready([1, 2, 3])
        for round_ in range(6):
            receivers = [frame.dst for frame, _ in node.train(round_)]
            assert receivers == [1 + place for place in slow_choose(0, round_, 3, 2, 0)]
            node.commit(round_)


def test_gossipfl_sends_the_mask() -> None:
    with Node(words(policy=PolicyKind.GOSSIPFL)) as node:
        assert node.start() == OK
        [(_, payload)] = node.ready([2]).train(3)
        mask = [c for c in range(P) if int(rng.draws(SEED, Stream.MASK, 3, 0, c)) >> 8 < 1 << 23]
        segment, _, values = part_of(payload, None)
        assert segment.coding == Coding.MASK
        assert values.tobytes() == node.weights[mask].tobytes()
    with Node(words(policy=PolicyKind.GOSSIPFL, ratio24=0)) as node:  # an empty part is not sent
        assert node.start() == OK
        assert node.ready([2]).train(0) == []


def test_pulls_and_their_answers() -> None:
    with Node(words(policy=PolicyKind.SEGMENTED_GOSSIP, segments=4, pulls=2)) as node:
        assert node.start() == OK
        node.ready([1, 2, 3])
        for round_ in range(2):
            wanted = {
                peer: tuple(s for s in range(4) if peer - 1 in slow_choose(0, round_, 3, 2, 2 * s))
                for peer in (1, 2, 3)
            }
            found = node.train(round_)
            assert [(frame.type, frame.dst, payload) for frame, payload in found] == [
                (MessageType.PULL, peer, Pull(segments).pack()) for peer, segments in wanted.items() if segments
            ]
            for peer, segments in ((3, (0, 2)), (1, (2, 3))):
                assert node.data(peer, MessageType.PULL, Pull(segments).pack(), round_) == OK
            answers = node.sync(round_)
            assert [(part_of(payload, None)[0].part, frame.dst) for frame, payload in answers] == [
                (0, 3), (2, 1), (2, 3), (3, 1),
            ]  # fmt: skip
            for _, payload in answers:
                segment, _, values = part_of(payload, None)
                assert segment.weight == 15
                assert values.tobytes() == node.weights[segment.part * P // 4 : (segment.part + 1) * P // 4].tobytes()
            node.commit(round_)


@pytest.mark.parametrize("bits", [2, 1])
def test_error_feedback_repays(bits: int) -> None:
    """Without training the weights stand; what is sent is their quantization plus what was owed."""
    with Node(words(policy=PolicyKind.DPSGD, bits=bits, error_feedback=1, lr=0.0)) as node:
        assert node.start() == OK
        node.ready([1])
        w, owed = node.weights, np.zeros(P, F32)
        for round_ in range(4):
            if round_ == 2:
                node.peers([])  # nothing is sent, so nothing is repaid
            messages = node.train(round_)
            node.commit(round_)
            if round_ == 2:
                assert messages == []
                node.peers([1])
                continue
            plain = w + owed
            [(_, payload)] = messages
            values = part_of(payload, None, P)[2]
            assert values.tobytes() == seen_as(plain, bits).tobytes()
            owed = plain - values
        assert node.weights.tobytes() == w.tobytes()


def test_topk_sends_what_was_not_told() -> None:
    with Node(words(policy=PolicyKind.TOPK, bits=4, top=9)) as node:
        assert node.start() == OK
        reference = node.ready([1, 2]).weights.copy()
        units = units_of(Unit.PARAMETER)
        for round_ in range(4):
            messages = node.train(round_)
            w = node.weights
            distance = np.abs(w - reference)
            expected = sorted(sorted(range(P), key=lambda c: (-distance[c], c))[:9])  # noqa: B023
            assert [frame.dst for frame, _ in messages] == [1, 2]
            segment, coordinates, values = part_of(messages[0][1], units)
            assert (coordinates, segment.weight) == (expected, 1.0)
            assert values.tobytes() == seen_as(w[expected], 4).tobytes()
            reference[expected] = values
            node.commit(round_)


# --- what is merged ------------------------------------------------------------------------------------------------


def segment(
    values: dict[int, float], weight: float, bits: int = 32, part: int = 0, kind: Unit | None = Unit.PARAMETER
) -> bytes:
    """Return a message with these values at these coordinates; `kind` None: they are the whole part."""
    plain = np.array([values[c] for c in sorted(values)], F32)
    coding, index = (Coding.RANGE, b"") if kind is None else indexing.encode(sorted(values), P)
    scale = quant.scale_of(plain, bits)
    packed = quant.pack(quant.quantize(plain, scale, bits), bits)
    return Segment(coding, bits, part, weight, float(scale), index, packed).pack()


def whole(value: float, weight: float) -> bytes:
    return segment(dict.fromkeys(range(P), value), weight, kind=None)


def slow_merge(w: np.ndarray, own: float, messages: list[tuple[float, dict[int, float]]]) -> np.ndarray:
    """Read 6.9, a coordinate at a time."""
    result = w.copy()
    with np.errstate(all="ignore"):
        for c in range(len(w)):
            num, den, touched = F32(own) * w[c], F32(own), False
            for a, values in messages:
                if c in values and a > 0:
                    num, den, touched = num + F32(a) * F32(values[c]), den + F32(a), True
            if touched and np.isfinite(num / den):
                result[c] = num / den
    return result


def merged(changes: dict[str, Any], messages: list[tuple[int, bytes]]) -> tuple[Node, np.ndarray, dict[str, Any]]:
    """Run one round in which these messages arrive; return the node, its weights before, and its report."""
    peers = sorted({src for src, _ in messages})
    node = Node(words(lr=0.0, **changes))
    assert node.start() == OK
    node.ready(peers)
    w = node.weights
    node.train(0)
    for src, payload in messages:
        assert node.data(src, SEGMENT, payload, 0) == OK
    return node, w, node.commit(0).words


ALL = {c: 0.25 for c in range(P)}


def test_dpsgd_mixes_by_metropolis_weights() -> None:
    messages = [(1, whole(0.25, 5.0)), (2, whole(0.25, 1.0)), (3, whole(0.25, 3.0))]
    node, w, report = merged({"policy": PolicyKind.DPSGD}, messages)
    with node:
        # The node has degree 3: 1 / (1 + max(3, 5)), 1 / (1 + 3), 1 / (1 + 3).
        a = [F32(1) / F32(6), F32(0.25), F32(0.25)]
        own = F32(1) - total(a)
        assert node.weights.tobytes() == slow_merge(w, own, [(float(x), ALL) for x in a]).tobytes()
        assert report["messages_merged"] == 3


@pytest.mark.parametrize(
    ("changes", "weights", "own"),
    [
        ({"success": Success.SENDER}, [0.5, 0.125], None),
        ({"success": Success.EQUAL}, [1.0, 1.0], 1.0),
        ({"policy": PolicyKind.TOPK, "top": P}, [1.0, 1.0], 1.0),
        ({"success": Success.SENDER, "success_base": 10.0}, [0.5, 0.125], None),
    ],
)
def test_indexed_messages_mix_where_they_cover(
    changes: dict[str, Any], weights: list[float], own: float | None
) -> None:
    first, second = {3: 1.0, 50: -2.0}, {c: 0.125 * c for c in range(40, 60)}
    node, w, report = merged(changes | {"segments": 1}, [(1, segment(first, 0.5)), (2, segment(second, 0.125))])
    with node:
        own = float(F32(report["val_correct"]) / F32(report["val_count"])) if own is None else own
        if "success_base" in changes:
            power = fmath.exp(np.array([*weights, own], F32) * fmath.log(np.array([10], F32)))
            weights, own = power[:2].tolist(), float(power[2])
        expected = slow_merge(w, own, [(weights[0], first), (weights[1], second)])
        assert node.weights.tobytes() == expected.tobytes()
        assert (expected != w).sum() == len({*first, *second})


def test_segments_mix_by_data() -> None:
    edge = P // 2
    messages = [
        (1, segment({c: 1.0 for c in range(edge)}, 45.0, part=0, kind=None)),
        (2, segment({c: 2.0 for c in range(edge, P)}, 30.0, part=1, kind=None)),
    ]
    node, w, _ = merged({"policy": PolicyKind.SEGMENTED_GOSSIP, "segments": 2}, messages)
    with node:
        expected = slow_merge(
            w, 15.0, [(45.0, dict.fromkeys(range(edge), 1.0)), (30.0, dict.fromkeys(range(edge, P), 2.0))]
        )
        assert node.weights.tobytes() == expected.tobytes()


def test_the_server_replaces_the_model() -> None:
    node, _, _ = merged({"policy": PolicyKind.FEDAVG}, [(SERVER, whole(0.375, 1.0))])
    with node:
        assert node.weights.tolist() == [0.375] * P


def test_the_mask_covers_its_coordinates() -> None:
    mask = [c for c in range(P) if int(rng.draws(SEED, Stream.MASK, 0, 0, c)) >> 8 < 1 << 23]
    values = np.full(len(mask), 0.5, F32)
    payload = Segment(Coding.MASK, 32, 0, 1.0, 0.0, b"", values.tobytes()).pack()
    node, w, _ = merged({"policy": PolicyKind.GOSSIPFL}, [(1, payload)])
    with node:
        assert node.weights.tobytes() == slow_merge(w, 1.0, [(1.0, dict.fromkeys(mask, 0.5))]).tobytes()


@pytest.mark.parametrize("success_base", [1.0, 10.0])
def test_verified_weighs_by_its_own_validation(success_base: float) -> None:
    draw = np.random.default_rng(8)
    values = [dict(enumerate(draw.normal(0, 2, P).astype(F32).tolist())) for _ in range(3)]
    values[1] = {c: v for c, v in values[1].items() if c % 3}
    changes = {"success": Success.VERIFIED, "segments": 1, "success_base": success_base}
    node, w, report = merged(changes, [(1 + i, segment(v, 0.5)) for i, v in enumerate(values)])
    with node:
        x, y = samples(20, 100)
        held_out, _ = split(SEED, 0, 20, 250)
        features = (x[held_out].T.astype(F32) * F32(0.125) + F32(-0.5))[:, :, None]
        labels = y[held_out].astype(np.int64)[:, None]

        def loss(weights: np.ndarray) -> F32:
            flat = weights[:, None]
            count = np.array([len(held_out)])
            found, _ = nn.evaluate(nn.Network(MODEL), flat, lambda place: (features[:, place], labels[place]), count)
            return F32(found[0])

        before = loss(w)
        assert F32(report["val_loss"]) == before
        a = []
        for offer in values:
            trial = w.copy()
            for c, v in offer.items():
                trial[c] = (w[c] + F32(v)) * F32(0.5)
            gain = F32(0.5) + ((before - loss(trial)) / before) * F32(0.5)
            a.append(min(max(gain, F32(0)), F32(1)))
        own = F32(0.5)
        if success_base > 1:
            power = fmath.exp(np.array([*a, own], F32) * fmath.log(np.array([success_base], F32)))
            a, own = list(power[:3]), power[3]
        expected = slow_merge(w, float(own), [(float(x), v) for x, v in zip(a, values, strict=True)])
        assert node.weights.tobytes() == expected.tobytes()


def test_a_weight_of_zero_covers_nothing() -> None:
    node, w, report = merged({"segments": 1}, [(1, segment({0: 9.0}, 0.0))])
    with node:
        assert node.weights.tobytes() == w.tobytes()
        assert report["messages_merged"] == 1


def test_a_merge_that_overflows_keeps_the_old_value() -> None:
    changes = {"segments": 1, "success_base": 3e38, "max_norm": 3e38}  # 3e38 to the 1 is beyond exp's 88
    node, w, _ = merged(changes, [(1, segment({0: 1.0, 1: 2.0}, 1.0)), (2, segment({1: 2.0}, 0.5))])
    with node:
        assert node.weights.tobytes() == w.tobytes()


def test_rejection() -> None:
    half = {c: 0.5 for c in range(4)}  # norm 1
    rejected = [NAN, INF, -INF, -0.25]
    values = [{0: NAN}, {0: INF}, {0: 1.0, 1: F32(2.0**-11)}, {0: 3e38}]
    messages = [(1, segment(half, w)) for w in rejected] + [(1, segment(v, 0.5)) for v in values]
    node, w, report = merged({"segments": 1, "max_norm": 1.0}, [*messages, (1, segment(half, 0.5))])
    with node:
        assert report["messages_rejected"] == len(messages)
        assert report["messages_merged"] == 1  # a norm of exactly max_norm is accepted
        assert report["frames_received"] == len(messages) + 1


def test_a_full_fifo_pushes_out_the_oldest() -> None:
    messages = [(1, segment({c: 1.0}, 1.0)) for c in range(5)]
    node, w, report = merged({"segments": 1, "fifo": 3, "success": Success.EQUAL}, messages)
    with node:
        assert (report["messages_evicted"], report["messages_merged"]) == (2, 3)
        assert np.nonzero(node.weights != w)[0].tolist() == [2, 3, 4]


def test_messages_wait_for_the_threshold_over_rounds() -> None:
    with Node(words(lr=0.0, segments=1, threshold=4, fifo=5, success=Success.EQUAL)) as node:
        assert node.start() == OK
        node.ready([1])
        w = node.weights
        merges = []
        for round_, count in enumerate((2, 1, 3, 0)):
            node.train(round_)
            for i in range(count):
                assert node.data(1, SEGMENT, segment({10 * round_ + i: 1.0}, 0.5), round_) == OK
            report = node.commit(round_).words
            merges.append((report["messages_merged"], report["messages_evicted"]))
            if round_ < 2:
                assert node.weights.tobytes() == w.tobytes()
        assert merges == [(0, 0), (0, 0), (5, 1), (0, 0)]
        assert np.nonzero(node.weights != w)[0].tolist() == [1, 10, 20, 21, 22]


def test_initial_weights_are_the_specification_s() -> None:
    for init in (Init.GLOROT, Init.HE):
        with Node(words(init=init)) as node:
            assert node.start() == OK
            assert node.weights.tobytes() == MODEL.initial(SEED, init).tobytes()


def test_a_part_is_sent_in_fragments_that_join() -> None:
    """At the least MTU every message comes in pieces; the receiver sees the same values."""
    with (
        Node(words(policy=PolicyKind.DPSGD, mtu=64), id=0) as one,
        Node(words(policy=PolicyKind.DPSGD, mtu=64), id=1) as two,
    ):
        for node, other in ((one, 1), (two, 0)):
            assert node.start() == OK
            node.ready([other])
        assert two.control(MessageType.ROUND) == OK
        one.control(MessageType.ROUND)
        one.work()
        two.work()
        *frames, done = one.take_raw()
        assert len(frames) == -(-(16 + 4 * P) // 26)
        assert [two.frame(data) for data in frames] == [OK] * len(frames)
        assert struct.unpack_from("<B", done, 1) == (MessageType.DONE,)
        w = two.weights
        two.take()
        report = two.commit(0)
        assert report.words["frames_received"] == len(frames)
        assert report.words["bytes_received"] == sum(map(len, frames))
        half = {c: float(v) for c, v in enumerate(one.weights)}
        assert two.weights.tobytes() == slow_merge(w, 0.5, [(0.5, half)]).tobytes()
