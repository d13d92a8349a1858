"""Compare the simulator's engines, and show that their time grows no faster than the nodes.

Run: python benchmarks/engines.py [--most 2000] [--rounds 3]

The digits experiment on made-up samples (there are not enough digits for thousands of nodes). Every measurement has a
process of its own, so its memory is its own; ratios are within one run of this program on one machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import twin_sim
from gossamer.experiment import load_experiment
from gossamer.job import Job
from gossamer.spec.constants import FeatureType
from gossamer.spec.image import build_image

EXPERIMENT = Path(__file__).parents[1] / "examples" / "digits_gist.toml"
SAMPLES, TEST_SAMPLES = 90, 360  # a node's, as the digits experiment has them


def job_of(nodes: int, rounds: int) -> Job:
    """Return the example's job for any number of nodes."""
    experiment = load_experiment(EXPERIMENT, [f"experiment.nodes={nodes}", f"experiment.rounds={rounds}"])
    plan, random = experiment.plan(), np.random.default_rng(0)

    def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
        return random.integers(0, 17, (count, 64), np.uint8), random.integers(0, 10, count, np.uint8)

    config = experiment.config_words(TEST_SAMPLES, SAMPLES, plan.peers_max, FeatureType.U8, 1 / 16, 0.0)
    test_x, test_y = samples(TEST_SAMPLES)
    shards = [samples(SAMPLES) for _ in range(nodes)]
    return Job(experiment, config, plan, build_image(config, test_x, test_y), shards, test_x, test_y)


def measure(engine: str, nodes: int, rounds: int) -> dict[str, float]:
    """Return seconds a round (the first, which builds and warms up, not counted) and peak memory in MiB."""
    with (
        tempfile.TemporaryDirectory() as folder,
        twin_sim.open_place(job_of(nodes, rounds + 1), "sim", engine, Path(folder)) as place,
    ):
        place.start(0)
        place.round(0)
        seconds = []
        for number in range(1, rounds + 1):
            begun = time.perf_counter()
            place.round(number)
            seconds.append(time.perf_counter() - begun)
    return {"round_s": min(seconds), "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_process(engine: str, nodes: int, rounds: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--child", engine, str(nodes), str(rounds)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        engine, nodes, rounds = arguments.child
        print(json.dumps(measure(engine, int(nodes), int(rounds))))
        return
    sizes = [125]
    while sizes[-1] * 2 <= arguments.most:
        sizes.append(sizes[-1] * 2)
    for engine in ("native", "numpy"):
        print(f"\n{engine:8}{'nodes':>6}{'node-rounds/s':>16}{'time, x the half':>18}{'peak MiB':>10}")
        before = None
        for nodes in sizes:
            found = in_process(engine, nodes, arguments.rounds)
            grown = f"{found['round_s'] / before:.2f}" if before else ""
            print(f"{'':8}{nodes:6}{nodes / found['round_s']:16,.0f}{grown:>18}{found['peak_mib']:10.0f}", flush=True)
            before = found["round_s"]
    native, numpy = (in_process(engine, 100, 2 * arguments.rounds)["round_s"] for engine in ("native", "numpy"))
    print(f"\nat 100 nodes a round costs numpy {numpy / native:.1f} x the native engine's time")


if __name__ == "__main__":
    main()
