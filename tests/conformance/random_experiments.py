"""Draw experiments of every shape from a seed: what the claim "equal to the bit" is tested on."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.conformance.random_models import random_model

POLICIES = ("gist", "segmented_gossip", "gossipfl", "dpsgd", "epidemic", "topk", "fedavg", "local")
BITS = (32, 16, 8, 4, 2, 1)
SCHEDULES = ("constant", "adastair", "adaloss", "adastair+adaloss")
TOPOLOGIES = (
    "ring", "line", "star", "full", "torus", "regular", "erdos_renyi", "watts_strogatz", "geometric", "tree",
    "clustered",
)  # fmt: skip


def random_experiment(seed: int) -> dict[str, Any]:
    """Return the tables of an experiment; equal seeds give equal tables."""
    draw = random.Random(seed)
    nodes = draw.randint(2, 40)
    depth = draw.randint(1, 4)
    momentum = draw.choice([0.0, 0.0, 0.5, 0.9])
    tables = {
        "experiment": {
            "name": f"random_{seed}",
            "seed": draw.getrandbits(64),
            "nodes": nodes,
            "rounds": draw.randint(2, 5),
            "eval_every": draw.choice([1, 1, 2]),
        },
        "data": _data(draw, nodes),
        "model": {
            "layers": [64, *(draw.randint(1, 200) for _ in range(depth - 1)), 10],
            "init": draw.choice(["glorot", "he"]),
        },
        "train": {
            "batch": draw.randint(1, 64),
            "local_steps": draw.randint(1, 6),
            # Now and then so rash that nodes diverge: that, too, must be equal.
            "lr": draw.choice([0.01, 0.1, 0.5, 2.0]) * (1 - momentum) if draw.random() < 0.9 else 1e6,
            "momentum": momentum,
            "weight_decay": draw.choice([0.0, 0.0, 1e-4, 0.01]),
        },
        "schedule": {"policy": draw.choice(SCHEDULES), "reference": draw.choice(["mean", "best", "ema"])},
        "policy": _policy(draw),
        "topology": _topology(draw, nodes),
        "link": {
            "loss": draw.choice([0.0, 0.1, 0.25, 0.5]),
            "mtu_bytes": draw.choice([64, 250, 1024, 4096]),
            "auth": draw.random() < 0.8,
        },
        "churn": {"away": draw.choice([0.0, 0.0, 0.1, 0.4]), "span": draw.randint(1, 3)},
    }
    trouble = random.Random(f"trouble {seed}")
    tables["link"]["duplication"] = trouble.choice([0.0, 0.2])
    if tables["link"]["auth"]:
        tables["link"]["corruption"] = trouble.choice([0.0, 0.2])
    tables["faults"] = _faults(trouble, nodes, tables["experiment"]["rounds"], tables["link"]["auth"])
    return tables


def _faults(draw: random.Random, nodes: int, rounds: int, auth: bool) -> dict[str, Any]:
    """Return faults that make sense: each node goes and comes by itself, each half is cut off and healed."""
    events: list[dict[str, Any]] = []
    for node in draw.sample(range(nodes), draw.randint(0, min(3, nodes))):
        first, last = sorted(draw.choices(range(rounds), k=2))
        go, come = draw.choice([("kill", "restart"), ("pause", "resume"), ("pause", "restart")])
        events.append({"at": f"round {first}", "do": go, "nodes": [node]})
        if draw.random() < 0.7:
            events.append({"at": f"round {last}", "do": come, "nodes": [node]})
    cuts = draw.sample(["partition", "corrupt_link"][: 1 + auth], draw.randint(0, 1 + auth))
    for do in cuts:
        side = draw.choice([["half"], [draw.randrange(nodes)]])
        events.append({"at": f"round {draw.randrange((rounds + 1) // 2)}", "do": do, "nodes": side})
    if cuts and draw.random() < 0.7:
        events.append({"at": f"round {rounds - 1}", "do": "heal"})
    return {"groups": {"half": list(range((nodes + 1) // 2))}, "event": events}


def random_cnn_experiment(seed: int) -> dict[str, Any]:
    """Return the tables of an experiment whose model has layers of all kinds; equal seeds give equal tables."""
    tables = random_experiment(seed)
    draw = random.Random(f"layers {seed}")
    tables["experiment"] |= {"nodes": draw.randint(2, 6), "rounds": draw.randint(2, 3)}
    tables["model"], trainable = random_model(draw, draw.choice([(8, 8, 1), (4, 4, 4), (2, 16, 2)]), 10)
    tables["model"]["init"] = draw.choice(["glorot", "he"])
    tables["train"] |= {"batch": draw.randint(1, 12), "local_steps": draw.randint(1, 3), "trainable": trainable}
    if draw.random() < 0.6:
        del tables["train"]["momentum"]
        betas = {"beta1": draw.choice([0.0, 0.5, 0.9]), "beta2": draw.choice([0.9, 0.999])}
        tables["train"] |= {"optimizer": "adam", "lr": draw.choice([0.001, 0.01, 0.1, 1e30]), **betas}
    if tables["policy"]["name"] in ("gist", "segmented_gossip"):
        tables["policy"]["segments"] = min(tables["policy"]["segments"], 4)
    nodes, rounds = tables["experiment"]["nodes"], tables["experiment"]["rounds"]
    tables["faults"] = _faults(random.Random(f"trouble {seed}"), nodes, rounds, tables["link"]["auth"])
    tables["topology"] = {"kind": draw.choice(["ring", "full", "line", "star"])}
    tables["data"] = _data(draw, nodes)
    return tables


def _data(draw: random.Random, nodes: int) -> dict[str, Any]:
    kind = draw.choice(["iid", "dirichlet", "labels", "quantity"])
    options: dict[str, dict[str, Any]] = {
        "iid": {},
        "dirichlet": {"alpha": draw.choice([0.1, 0.5, 5.0])},
        "labels": {"labels_per_node": draw.randint(2, 5)},
        "quantity": {"alpha": 1.0},
    }
    return {
        "set": "digits",
        "partition": kind,
        "test_fraction": 0.1,
        "validation": draw.choice([0.1, 0.2, 0.5]),
        **options[kind],
    }


def _policy(draw: random.Random) -> dict[str, Any]:
    name = draw.choice(POLICIES)
    own: dict[str, dict[str, Any]] = {
        "gist": {
            "segments": draw.randint(1, 8),
            "sends": draw.randint(1, 10),
            "threshold": draw.choice([1, 2, 5]),
            "fifo": draw.randint(5, 12),
            "unit": draw.choice(["parameter", "kernel", "channel", "layer"]),
            "score": draw.choice(["weight", "update", "gradient", "taylor", "fisher"]),
            "reduce": draw.choice(["l2", "mean"]),
            "base": draw.choice([1.0, 10.0, 1e4]),
            "spread": draw.choice(
                ["uniform_with_replacement", "uniform_without_replacement", "balanced", "round_robin"]
            ),
            "success": draw.choice(["sender", "sender", "equal", "verified"]),
            "success_base": draw.choice([1.0, 10.0]),
        },
        "segmented_gossip": {"segments": draw.randint(1, 8), "pulls": draw.randint(1, 3)},
        "gossipfl": {"ratio": draw.choice([0.1, 0.5, 1.0]), "reuse_after": draw.randint(1, 3)},
        "dpsgd": {},
        "epidemic": {"fanout": draw.randint(1, 4)},
        "topk": {"ratio": draw.choice([0.01, 0.1, 1.0])},
        "fedavg": {},
        "local": {},
    }
    shared: dict[str, Any] = {"bits": draw.choice(BITS), "max_norm": draw.choice([1000.0, 1000.0, 10.0])}
    if name != "topk":
        shared["error_feedback"] = draw.random() < 0.4
    return {"name": name, **shared, **own[name]}


def _topology(draw: random.Random, nodes: int) -> dict[str, Any]:
    kind = draw.choice(TOPOLOGIES)
    even = 2 * draw.randint(1, 2)
    if kind in ("regular", "watts_strogatz") and nodes <= even + 1:
        kind = "ring"
    if kind == "torus" and nodes < 9:
        kind = "full"
    options: dict[str, dict[str, Any]] = {
        "regular": {"degree": even},
        "erdos_renyi": {"probability": 0.3},
        "watts_strogatz": {"degree": even, "rewire": 0.3},
        "geometric": {"radius": 0.4},
        "clustered": {"clusters": min(nodes, draw.randint(1, 3))},
    }
    return {"kind": kind, "redraw": draw.random() < 0.3, **options.get(kind, {})}


def to_toml(tables: dict[str, Any]) -> str:
    """Write tables of plain values as an experiment file."""
    lines = []
    for section, values in tables.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)
