"""What nodes send, against a slow reading of SPEC.md 6 for one node at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.spec import rng
from gossamer.spec.constants import CONFIG_WORDS, PolicyKind, Score, Spread, Stream, Success, Unit
from gossamer.spec.nn import Model, ordered_sum
from gossamer.spec.policies import POLICIES, Memory, Round, fresh_memory
from gossamer.spec.settings import Settings
from gossamer.spec.units import Units

F32 = np.float32
NODES, SEED, NUMBER = 6, 99, 4
MODEL = Model.dense((5, 4, 3))
# Ring with a chord, an isolated node 5: degrees 2, 3, 2, 3, 2, 0.
PEERS = [[1, 4], [0, 2, 3], [1, 3], [1, 2, 4], [0, 3], []]


def settings(**changes: Any) -> Settings:
    words: dict[str, Any] = dict.fromkeys(CONFIG_WORDS, 0)
    words |= {"seed_lo": SEED, "nodes": NODES, "rounds": 9} | MODEL.words()
    words |= {"bits": 32, "segments": 3, "sends": 7, "threshold": 1, "fifo": 10, "score": Score.UPDATE, "base": 1.0}
    words |= {"success_base": 1.0, "mtu": 1024, "auth": 1, "max_norm": 1000.0, "pulls": 2, "fanout": 2, "top": 6}
    words |= {"ratio24": 1 << 23}
    return Settings.from_words(words | changes)


def state_of(chosen: Settings, memory: Memory | None = None, present: tuple[int, ...] = tuple(range(NODES))) -> Round:
    random = np.random.default_rng(3)
    w = random.normal(size=(MODEL.parameters, NODES)).astype(F32)
    peers = np.full((3, NODES), -1)
    for node, row in enumerate(PEERS):
        peers[: len(row), node] = row
    return Round(
        settings=chosen,
        units=Units(MODEL, chosen.unit),
        number=NUMBER,
        present=np.isin(np.arange(NODES), present),
        w=w,
        start=w + random.normal(size=w.shape).astype(F32),
        average=None,
        success=np.linspace(0, 1, NODES, dtype=F32),
        n_train=np.arange(10, 10 + NODES),
        peers=peers,
        degree=(peers >= 0).sum(axis=0),
        memory=memory or fresh_memory(chosen, w, 3),
    )


def draw(node: int, index: int) -> int:
    return int(rng.draws(SEED, Stream.SHARE, NUMBER, node, index))


def sends_of(state: Round, chosen: Settings) -> list[list[tuple[int, int]]]:
    """Return (part, receiver) in order of sending, by node."""
    policy = POLICIES[chosen.policy]()
    part = policy.part(state)
    messages = policy.send(state, part)
    assert (np.diff(messages.src) >= 0).all()
    rows = zip(messages.src.tolist(), messages.part.tolist(), messages.dst.tolist(), strict=True)
    found: list[list[tuple[int, int]]] = [[] for _ in range(NODES)]
    for src, number, dst in rows:
        found[src].append((number, dst))
    return found


def slow_gist(state: Round, chosen: Settings, node: int) -> list[tuple[int, int]]:
    """Read 6.4 for one node, spread `uniform_with_replacement`, unit `kernel`, importance `l2`."""
    score = np.abs(state.w[:, node] - state.start[:, node])
    units = state.units.members
    importance = [float(np.sqrt(ordered_sum((score[u] * score[u])[:, None])[0])) for u in units]
    ranked = sorted(range(len(units)), key=lambda u: (-importance[u], u))
    segment, before = {}, 0
    for unit in ranked:
        segment[unit] = min(chosen.segments - 1, before * chosen.segments // MODEL.parameters)
        before += len(units[unit])
    means = []
    for k in range(chosen.segments):
        inside = [F32(importance[u]) for u in ranked if segment[u] == k]
        total = F32(0)
        for value in inside:
            total = total + value
        means.append(total / F32(len(inside)) if inside else F32(0))
    total = F32(0)
    for value in means:
        total = total + value
    p = [value / total for value in means]
    total = F32(0)
    for value in p:
        total = total + value
    sends = []
    for j in range(chosen.sends):
        x = F32((draw(node, 2 * j) >> 8) * 2.0**-24) * total
        running = F32(0)
        for k, value in enumerate(p):
            running = running + value
            if running > x and means[k] > 0:
                break
        peers = PEERS[node]
        sends.append((k, j, peers[draw(node, 2 * j + 1) * len(peers) >> 32]))
    return [(k, dst) for k, _, dst in sorted(sends)]


def test_gist_sends_what_a_slow_reading_sends() -> None:
    chosen = settings(policy=PolicyKind.GIST, unit=Unit.KERNEL)
    state = state_of(chosen)
    expected = [slow_gist(state, chosen, node) if PEERS[node] else [] for node in range(NODES)]
    assert sends_of(state, chosen) == expected


def test_absent_nodes_send_nothing_and_draw_nothing() -> None:
    chosen = settings(policy=PolicyKind.GIST, spread=Spread.ROUND_ROBIN)
    state = state_of(chosen, present=(0, 2))
    found = sends_of(state, chosen)
    assert [len(row) for row in found] == [7, 0, 7, 0, 0, 0]
    assert state.memory.cursor is not None
    assert state.memory.cursor.tolist() == [7, 0, 7, 0, 0, 0]


@pytest.mark.parametrize("spread", [Spread.UNIFORM_WITHOUT_REPLACEMENT, Spread.BALANCED, Spread.ROUND_ROBIN])
def test_even_spreads_send_to_each_neighbour_alike(spread: Spread) -> None:
    chosen = settings(policy=PolicyKind.GIST, spread=spread)
    for node, row in enumerate(sends_of(state_of(chosen), chosen)):
        received = [sum(dst == peer for _, dst in row) for peer in PEERS[node]]
        assert not received or max(received) - min(received) <= 1


def test_balance_is_kept_over_rounds() -> None:
    chosen = settings(policy=PolicyKind.GIST, spread=Spread.BALANCED)
    memory = state_of(chosen).memory
    sends_of(state_of(chosen, memory), chosen)
    sends_of(state_of(chosen, memory), chosen)
    assert memory.send_counts is not None
    # Fourteen sends each: 7 and 7, or 5, 5 and 4 among three.
    assert np.sort(memory.send_counts[:, :5], axis=0).tolist() == [
        [0, 4, 0, 4, 0], [7, 5, 7, 5, 7], [7, 5, 7, 5, 7],
    ]  # fmt: skip


def test_sharpening_prefers_the_gist() -> None:
    flat = settings(policy=PolicyKind.GIST, sends=200)
    sharp = settings(policy=PolicyKind.GIST, sends=200, base=1e8)
    share = [
        np.mean([k == 0 for row in sends_of(state_of(chosen), chosen) for k, _ in row]) for chosen in (flat, sharp)
    ]
    assert share[1] > share[0] + 0.2


def test_importance_zero_draws_all_segments_alike() -> None:
    chosen = settings(policy=PolicyKind.GIST, sends=300)
    state = state_of(chosen)
    state.start = state.w.copy()
    counts = np.bincount([k for row in sends_of(state, chosen) for k, _ in row])
    assert counts.min() > 0.9 * counts.mean()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (PolicyKind.DPSGD, [[(0, peer) for peer in row] for row in PEERS]),
        (PolicyKind.TOPK, [[(0, peer) for peer in row] for row in PEERS]),
        (PolicyKind.FEDAVG, [[(0, 65534)]] * NODES),
        (PolicyKind.LOCAL, [[]] * NODES),
    ],
)
def test_who_gets_the_model(kind: PolicyKind, expected: list[list[tuple[int, int]]]) -> None:
    chosen = settings(policy=kind)
    assert sends_of(state_of(chosen), chosen) == expected


def slow_choose(node: int, n: int, k: int, index0: int) -> list[int]:
    taken: list[int] = []
    wanted = min(n, k)
    for i in range(wanted):
        j = n - wanted + i
        t = draw(node, index0 + i) * (j + 1) >> 32
        taken.append(j if t in taken else t)
    return sorted(taken)


def test_epidemic_chooses_by_floyd() -> None:
    chosen = settings(policy=PolicyKind.EPIDEMIC)
    expected = [[(0, row[i]) for i in slow_choose(node, len(row), 2, 0)] for node, row in enumerate(PEERS)]
    assert sends_of(state_of(chosen), chosen) == expected


def test_pulls_are_chosen_segment_by_segment() -> None:
    chosen = settings(policy=PolicyKind.SEGMENTED_GOSSIP)
    wanted = POLICIES[PolicyKind.SEGMENTED_GOSSIP]().request(state_of(chosen))
    rows = list(zip(wanted.src.tolist(), wanted.dst.tolist(), wanted.part.tolist(), strict=True))
    expected = sorted(
        (node, row[i], segment)
        for node, row in enumerate(PEERS)
        for segment in range(3)
        for i in slow_choose(node, len(row), 2, 2 * segment)
    )
    assert rows == expected


def test_topk_offers_what_moved_most_and_remembers_what_it_told() -> None:
    chosen = settings(policy=PolicyKind.TOPK, bits=8)
    state = state_of(chosen)
    policy = POLICIES[PolicyKind.TOPK]()
    reference = state.memory.reference
    assert reference is not None
    reference[:] = state.w
    reference[[3, 8, 20, 21, 30, 38], 1] -= np.arange(6, 0, -1, dtype=F32)
    part = policy.part(state)
    assert np.nonzero(part[:, 1] == 0)[0].tolist() == [3, 8, 20, 21, 30, 38]
    assert np.nonzero(part[:, 0] == 0)[0].tolist() == [0, 1, 2, 3, 4, 5]  # all alike: the lowest
    parts, plain = policy.offer(state, part)
    before = reference.copy()
    sent = np.zeros((1, NODES), np.bool_)
    sent[0, 1] = True
    policy.remember(state, plain, parts, sent)
    told = np.array([3, 8, 20, 21, 30, 38])
    np.testing.assert_array_equal(reference[told, 1], parts.values[told, 1])
    np.testing.assert_array_equal(np.delete(reference, 1, axis=1), np.delete(before, 1, axis=1))
    assert np.abs(reference[told, 1] - state.w[told, 1]).max() <= np.abs(state.w[told, 1]).max() / 127 / 2 * 1.001


def test_error_feedback_keeps_what_quantization_took() -> None:
    chosen = settings(policy=PolicyKind.DPSGD, bits=2, error_feedback=1)
    state = state_of(chosen)
    policy = POLICIES[PolicyKind.DPSGD]()
    parts, plain = policy.offer(state, policy.part(state))
    sent = np.array([[True, True, True, True, True, False]])
    policy.remember(state, plain, parts, sent)
    residual = state.memory.residual
    assert residual is not None
    np.testing.assert_array_equal(residual[:, :5], (state.w - parts.values)[:, :5])
    assert not residual[:, 5].any()
    again, _ = policy.offer(state, policy.part(state))
    # Over two rounds the mean told is closer to the weights than one telling is.
    error = np.abs((parts.values + again.values)[:, :5] / 2 - state.w[:, :5]).mean()
    assert error < np.abs(parts.values - state.w)[:, :5].mean()


def test_metropolis_weights_sum_to_one() -> None:
    chosen = settings(policy=PolicyKind.DPSGD)
    state = state_of(chosen)
    policy = POLICIES[PolicyKind.DPSGD]()
    # Node 0 (degree 2) hears 1 (degree 3) and 4 (degree 2): 1/4, 1/3, own 5/12.
    heard = [policy.message_weight(state, np.array([0]), np.array([d], F32))[0] for d in (3, 2)]
    assert heard == [F32(0.25), F32(1) / F32(3)]
    own = policy.own_weight(state, np.full(NODES, heard[0] + heard[1]))[0]
    assert own == pytest.approx(5 / 12)


def test_verified_own_weight_is_a_half() -> None:
    chosen = settings(policy=PolicyKind.GIST, success=Success.VERIFIED)
    state = state_of(chosen)
    assert POLICIES[PolicyKind.GIST]().own_weight(state, np.zeros(NODES, F32)).tolist() == [0.5] * NODES
