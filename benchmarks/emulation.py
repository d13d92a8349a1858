"""Measure emulated nodes: how many fit, how fast they are, and what they cost when they wait.

Run: python benchmarks/emulation.py [--nodes 8 16 40] [--rounds 2]

The digits experiment, one QEMU a node. `boot` is from the first process to the last HELLO answered and every shard
delivered; `idle` is the processor time of a node that waits, as a share of one core. Rounds a second depend on the
cores that the nodes share: compare within one run of this program.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import models
from gossamer.experiment import load_experiment
from twin_emu import EmuPlace

EXPERIMENT = Path(__file__).parents[1] / "examples" / "digits_gist.toml"
IDLE_S = 5.0


def processor_s(place: EmuPlace) -> float:
    """Add up the processor time that the emulators took so far."""
    ticks = 0
    for line in place.lines:
        fields = Path(f"/proc/{line.body.pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(nodes: int, rounds: int) -> dict[str, float]:
    """Start so many nodes, run rounds, and let them wait."""
    overrides = [f"experiment.nodes={nodes}", f"experiment.rounds={rounds}"]
    job = models.prepare(load_experiment(EXPERIMENT, overrides))
    with tempfile.TemporaryDirectory() as folder, EmuPlace(job, Path(folder)) as place:
        begun_s = time.perf_counter()
        place.start(0)
        boot_s = time.perf_counter() - begun_s
        begun_s, begun_cpu_s = time.perf_counter(), processor_s(place)
        for number in range(rounds):
            place.round(number)
        round_s = (time.perf_counter() - begun_s) / rounds
        round_cpu_s = (processor_s(place) - begun_cpu_s) / rounds / nodes
        memory_mib = place.facts["node_mib"]
        idle_cpu_s = processor_s(place)
        time.sleep(IDLE_S)
        idle = (processor_s(place) - idle_cpu_s) / IDLE_S / nodes
    return {
        "boot_s": boot_s,
        "rounds_per_s": 1 / round_s,
        "node_round_cpu_s": round_cpu_s,
        "node_mib": memory_mib,
        "idle_percent": 100 * idle,
    }


def main() -> None:
    """Print one row for every number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16, 40])
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before")
    print("nodes  boot s  rounds/s  cpu s a node and round  MiB a node  MiB in all  idle % of a core a node")
    for nodes in options.nodes:
        found = measure(nodes, options.rounds)
        print(
            f"{nodes:>5} {found['boot_s']:>7.2f} {found['rounds_per_s']:>9.2f} {found['node_round_cpu_s']:>23.2f}"
            f" {found['node_mib']:>11.1f} {nodes * found['node_mib']:>11.0f} {found['idle_percent']:>24.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
