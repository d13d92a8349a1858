"""The plan: absences, matching, losses and order, against a slow reading of SPEC.md 7."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np
import pytest

from gossamer.spec import rng
from gossamer.spec.constants import SERVER, PolicyKind, Stream
from gossamer.spec.plan import Absence, AllOthers, Noise, Partition, Plan, Topology

RING = Topology.of("ring")


def draw(seed: int, stream: Stream, round_: int, node: int, index: int = 0) -> int:
    return int(rng.draws(seed, stream, round_, node, index))


def plan_of(policy: PolicyKind = PolicyKind.GIST, topology: Topology = RING, nodes: int = 8, **options: Any) -> Plan:
    return Plan(seed=11, nodes=nodes, rounds=6, policy=policy, topology=topology, **options)


def as_lists(peers: Any) -> list[list[int]]:
    assert all(ids.dtype == np.uint16 for ids in peers)
    return [ids.tolist() for ids in peers]


# --- churn -----------------------------------------------------------------------------------------------------


def test_all_are_present_unless_told_otherwise() -> None:
    assert plan_of().present(5).all()


@pytest.mark.parametrize("span", [1, 3, 50])
def test_an_absence_lasts_its_span(span: int) -> None:
    away24 = floor(0.2 * 2**24)
    plan = plan_of(away24=away24, span=span)
    missing = 0
    for r in range(12):
        for node in range(8):
            begun = [draw(11, Stream.CHURN, k, node) >> 8 < away24 for k in range(max(0, r - span + 1), r + 1)]
            assert plan.present(r)[node] == (not any(begun))
            missing += any(begun)
    assert missing > 5


def test_listed_absences_add_to_the_drawn() -> None:
    plan = plan_of(absences=(Absence(2, 1, 3), Absence(2, 5, 6), Absence(0, 0, 1)))
    assert [plan.present(r)[2] for r in range(7)] == [True, False, False, True, True, False, True]
    assert [bool(plan.present(r)[0]) for r in range(2)] == [False, True]


# --- peers -----------------------------------------------------------------------------------------------------


def test_peers_are_the_neighbours() -> None:
    plan = plan_of(nodes=4)
    assert as_lists(plan.peers(3)) == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert plan.peers_max == 2


@pytest.mark.parametrize(("policy", "topology"), [(PolicyKind.EPIDEMIC, RING), (PolicyKind.DPSGD, Topology.of("full"))])
def test_all_others(policy: PolicyKind, topology: Topology) -> None:
    plan = plan_of(policy, topology, nodes=4)
    assert as_lists(plan.peers(0)) == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert plan.peers_max == 3


def test_all_others_is_a_sequence() -> None:
    others = AllOthers(3)
    assert len(others) == 3 and as_lists(others[1:]) == [[0, 2], [0, 1]] and others[-1].tolist() == [0, 1]
    with pytest.raises(IndexError):
        others[3]


def test_policies_without_neighbours() -> None:
    assert as_lists(plan_of(PolicyKind.FEDAVG).peers(0)) == [[SERVER]] * 8
    assert as_lists(plan_of(PolicyKind.LOCAL).peers(0)) == [[]] * 8
    assert plan_of(PolicyKind.FEDAVG).peers_max == 1
    assert plan_of(PolicyKind.LOCAL).peers_max == 0


def test_redrawn_graphs_change_and_the_longest_list_is_known() -> None:
    graph = Topology.of("erdos_renyi", redraw=True, probability=0.4)
    plan = plan_of(topology=graph)
    lists = [as_lists(plan.peers(r)) for r in range(6)]
    assert lists[0] != lists[1]
    assert plan.peers_max == max(len(peers) for of_round in lists for peers in of_round)
    assert lists == [as_lists(plan_of(topology=graph).peers(r)) for r in range(6)]
    still = plan_of(topology=Topology.of("erdos_renyi", probability=0.4))
    assert as_lists(still.peers(5)) == as_lists(still.peers(0)) == lists[0]


# --- matching --------------------------------------------------------------------------------------------------


def slow_matching(plan: Plan, low: int, high: int, reuse_after: int, rounds: int) -> list[list[list[int]]]:
    result: list[list[list[int]]] = []
    for r in range(rounds):
        links = plan.links(r).tolist()
        present = plan.present(r)
        recent = [link for k in range(max(0, r - reuse_after + 1), r) for link in result[k]]
        order = []
        for e, (a, b) in enumerate(links):
            if present[a] and present[b] and [a, b] not in recent:
                speed = low + (draw(11, Stream.BANDWIDTH, 0, a | b << 16) * (high - low + 1) >> 32)
                order.append((-speed, draw(11, Stream.MATCH, r, 0, e), e))
        busy: set[int] = set()
        pairs = []
        for _, _, e in sorted(order):
            if not busy & set(links[e]):
                pairs.append(links[e])
                busy |= set(links[e])
        result.append(sorted(pairs))
    return result


@pytest.mark.parametrize("topology", [Topology.of("full"), Topology.of("regular", redraw=True, degree=4)])
@pytest.mark.parametrize(("reuse_after", "bandwidth"), [(1, (5, 5)), (2, (1, 4)), (4, (10, 4_000_000_000))])
def test_matching_is_that_of_the_slow_reading(topology: Topology, reuse_after: int, bandwidth: tuple[int, int]) -> None:
    plan = plan_of(
        PolicyKind.GOSSIPFL, topology, nodes=11, reuse_after=reuse_after, bandwidth_kbps=bandwidth, away24=2**21, span=2
    )
    expected = slow_matching(plan, *bandwidth, reuse_after, 6)
    assert plan.matching(5).tolist() == expected[5]  # later rounds first: the order of asking does not matter
    assert [plan.matching(r).tolist() for r in range(6)] == expected
    for r in range(6):
        peers = as_lists(plan.peers(r))
        assert sorted([a, b[0]] for a, b in enumerate(peers) if b and a < b[0]) == expected[r]
        assert all(peers[b[0]] == [a] for a, b in enumerate(peers) if b)
    assert plan.peers_max == 1


# --- losses and order ------------------------------------------------------------------------------------------


def test_losses_can_be_decided_from_the_header_alone() -> None:
    plan = plan_of(loss24=2**23)
    src, seq = np.arange(8), np.arange(1, 8)[:, None]
    lost = plan.lost(src, (src + 1) % 8, 4, seq)
    assert lost.shape == (7, 8)
    expected = [
        [draw(11, Stream.LINK, 4, s | (s + 1) % 8 << 16, q) >> 8 < 2**23 for s in range(8)] for q in range(1, 8)
    ]
    assert lost.tolist() == expected
    to_server = plan.lost(3, SERVER, 4, 2)
    assert bool(to_server) == (draw(11, Stream.LINK, 4, 3 | SERVER << 16, 2) >> 8 < 2**23)
    assert not plan_of().lost(src, src[::-1], 0, 1).any()
    assert plan_of(loss24=2**24).lost(src, src[::-1], 0, 1).all()


def test_a_partition_loses_what_would_cross_it_and_nothing_else() -> None:
    plan = plan_of(partitions=(Partition((0, 3), 2, 4),))
    src, dst = np.arange(8)[:, None], np.arange(8)
    crosses = np.array([[(a in (0, 3)) != (b in (0, 3)) for b in range(8)] for a in range(8)])
    assert [(plan.lost(src, dst, r, 5) == (crosses if 2 <= r < 4 else False)).all() for r in range(6)] == [True] * 6
    assert plan.lost([0, 1], SERVER, 2, 1).tolist() == [True, False]


def test_corruption_and_duplication_have_draws_of_their_own() -> None:
    plan = plan_of(corruption24=2**22, duplication24=2**23, noises=(Noise((2,), 1, 3, 2**24),))
    src, seq = np.arange(8), np.arange(1, 8)[:, None]
    dst = (src + 1) % 8
    for stream, found, p24 in (
        (Stream.CORRUPT, plan.corrupted(src, dst, 4, seq), 2**22),
        (Stream.DUPLICATE, plan.duplicated(src, dst, 4, seq), 2**23),
    ):
        assert found.tolist() == [
            [draw(11, stream, 4, s | (s + 1) % 8 << 16, q) >> 8 < p24 for s in range(8)] for q in range(1, 8)
        ]
    noisy = plan.corrupted(src, dst, 2, seq)
    assert noisy[:, [1, 2]].all() and not noisy.all()
    assert not plan_of().corrupted(src, dst, 2, seq).any() and not plan_of().duplicated(src, dst, 2, seq).any()


def test_frames_are_under_way_for_the_delay_and_jitter_unless_they_overtake() -> None:
    plan = plan_of(delay_us=5000, jitter_us=2000, overtaking24=2**22)
    src, seq = np.arange(8), np.arange(1, 8)[:, None]
    expected = []
    for q in range(1, 8):
        for s in range(8):
            node = s | (s + 1) % 8 << 16
            jitter = draw(11, Stream.DELAY, 3, node, q) * 4001 >> 32
            expected.append(0 if draw(11, Stream.OVERTAKE, 3, node, q) >> 8 < 2**22 else 3000 + jitter)
    assert plan.delays_us(src, (src + 1) % 8, 3, seq).ravel().tolist() == expected
    assert 0 in expected and min(x for x in expected if x) >= 3000
    assert not plan_of().delays_us(src, src[::-1], 0, 1).any()


def test_delivery_starts_with_another_source_every_round() -> None:
    keys = plan_of().delivery_key([0, 3, 7, SERVER], 10)
    assert keys.tolist() == [(0 - 10) % 8, (3 - 10) % 8, (7 - 10) % 8, 8]
