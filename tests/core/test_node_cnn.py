"""A node that trains convolutional models, round by round, against the slow reading of SPEC.md 3 and 4."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gossamer.spec import rng
from gossamer.spec.constants import Optimizer, PolicyKind, Stream
from tests.core import naive
from tests.core.naive_nn import Layer, Net, Shape, dense, model_words
from tests.core.nn_cases import MAX, SAME, conv, dropout, norm, plus, pool
from tests.core.probe import OK, Node, given_of, samples, words

F = np.float32
SEED, SHARD, BATCH, STEPS = 5, 20, 3, 2
LR, BETA1, BETA2, EPSILON = F(0.05), F(0.9), F(0.99), F(1e-6)
SHAPE: Shape = (2, 3, 1)
MODELS: dict[str, list[Layer]] = {
    "all": [
        conv(4, 2, padding=SAME),
        norm(2, relu=True),
        conv(4, 2, padding=SAME),
        plus(1),
        dropout(0.3),
        dense(3, False),
    ],
    "sparse": [
        conv(4, 2, padding=SAME, frozen=True),
        norm(2, relu=True, frozen=True),
        dropout(0.2),
        conv(5, 2, padding=SAME),
        pool(MAX, (2, 2), (1, 1)),
        dense(6, frozen=True),
        dropout(0.4),
        dense(3, False),
    ],
}


def config_of(name: str, **changes: Any) -> dict[str, int | float]:
    adam = {"optimizer": Optimizer.ADAM, "lr": LR, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON}
    policy = {"policy": PolicyKind.LOCAL, "batch": BATCH, "local_steps": STEPS}
    return words(**policy) | adam | model_words(SHAPE, MODELS[name]) | changes


def draws(stream: Stream, round_: int, node: int, count: int) -> list[int]:
    found: NDArray[np.uint32] = rng.draws(SEED, stream, round_, node, np.arange(count, dtype=np.uint32))
    return [int(word) for word in found]


def shuffled(order: list[int], numbers: list[int]) -> list[int]:
    """Section 2.5: a partial shuffle, one step a draw."""
    order = list(order)
    for t, number in enumerate(numbers):
        j = t + (number * (len(order) - t) >> 32)
        order[t], order[j] = order[j], order[t]
    return order


class Slow:
    """Sections 4.1 to 4.3, for the model, shard and words of these tests."""

    def __init__(self, name: str, node: int, config: dict[str, int | float], w: NDArray[np.float32]) -> None:
        self.net = Net(SHAPE, MODELS[name], list(w), list(given_of(config)))
        x, labels = samples(SHARD, 100 + node)
        self.x = [[F(byte) * F(0.125) + F(-0.5) for byte in row] for row in x]
        self.labels = [int(label) for label in labels]
        held_out = SHARD * int(config["val_permille"]) // 1000
        order = shuffled(list(range(SHARD)), draws(Stream.SPLIT, 0, node, held_out))
        self.node, self.validation, self.training = node, order[:held_out], order[held_out:]

    def round(self, number: int) -> tuple[np.float32, np.float32]:
        """Train; return training loss and validation loss."""
        numbers = draws(Stream.BATCH, number, self.node, BATCH * STEPS)
        assert len(numbers) <= len(self.training)
        rows = shuffled(self.training, numbers)
        drops = draws(Stream.DROPOUT, number, self.node, STEPS * BATCH * self.net.dropped)
        losses = []
        for step in range(STEPS):
            batch = rows[step * BATCH : (step + 1) * BATCH]
            x, labels = [self.x[row] for row in batch], [self.labels[row] for row in batch]
            loss, g = self.net.gradient(x, labels, lambda i: drops[i], step)
            self.net.adam(g, LR, (BETA1, BETA2), EPSILON, F(0))
            losses.append(loss)
        checks = [Net.loss(self.net.forward(self.x[row])[-1], self.labels[row])[0] for row in self.validation]
        return naive.add(F(0), losses) / F(STEPS), naive.add(F(0), checks) / F(len(checks))


@pytest.mark.parametrize("name", MODELS)
def test_rounds_are_the_specification_to_the_bit(name: str) -> None:
    config = config_of(name)
    with Node(config, id=2) as node:
        assert node.start() == OK
        node.ready([0, 1])
        slow = Slow(name, 2, config, node.weights)
        for number in range(3):
            train_loss, val_loss = slow.round(number)
            node.train(number)
            metrics = node.commit(number)
            assert node.weights.tobytes() == np.array(slow.net.w, np.float32).tobytes()
            assert metrics.words["train_loss"] == train_loss
            assert metrics.words["val_loss"] == val_loss
            assert list(metrics.tensor_crcs) == crcs(slow.net)


def crcs(net: Net) -> list[int]:
    """Section 10.2: of W and b of each layer that learns."""
    found, at = [], 0
    for part in net.parts:
        if part.weights and not part.layer.frozen:
            for count in (part.weights, part.biases):
                found.append(zlib.crc32(np.array(net.w[at : at + count], "<f4").tobytes()))
                at += count
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_restart_from_a_checkpoint_changes_nothing(name: str) -> None:
    def rounds(node: Node, first: int, end: int) -> None:
        for number in range(first, end):
            node.train(number)
            node.commit(number)

    with Node(config_of(name)) as whole:
        assert whole.start() == OK
        rounds(whole.ready([1, 2]), 0, 5)
        expected = whole.state
    with Node(config_of(name)) as cut:
        assert cut.start() == OK
        rounds(cut.ready([1, 2]), 0, 3)
        slots = cut.slots
    with Node(config_of(name)) as again:
        assert again.start(slots) == OK
        rounds(again.ready([1, 2], rounds=3), 3, 5)
        # Only the sequence numbers of control messages begin anew: a few words in what stands ahead of the weights.
        at = expected.index(again.weights.tobytes())
        assert again.state[at:] == expected[at:]


@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_a_node_that_diverged_starts_the_optimizer_anew(optimizer: Optimizer) -> None:
    """Infinite steps: the weights are those of the start after every round, and so is what the optimizer holds."""
    config = config_of("all", optimizer=optimizer, lr=3e38, momentum=0.5, val_permille=0)
    with Node(config) as node:
        assert node.start() == OK
        node.ready([1])
        start = node.weights
        states = []
        for number in range(2):
            node.train(number)
            assert node.commit(number).words["diverged"] == 1
            assert node.weights.tobytes() == start.tobytes()
            states.append(node.state)
        at = states[0].index(start.tobytes()) + start.nbytes
        expected = np.zeros(start.size * (2 if optimizer else 1) + (2 if optimizer else 0), np.float32)
        if optimizer:
            expected[:2] = 1
        at += -at % 8
        for state in states:
            assert state[at : at + expected.nbytes] == expected.tobytes()
