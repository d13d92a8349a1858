"""Experiments: what is read, what is refused and how it is said, and the words of the image."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from gossamer.errors import ExperimentError
from gossamer.experiment import load_experiment
from gossamer.experiment._locate import line_of, locate
from gossamer.spec.constants import CONFIG_WORDS, SERVER
from gossamer.spec.plan import Noise, Partition

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits_gist.toml"

MINIMAL = """\
[experiment]
name = "small"
seed = 7
nodes = 6
rounds = 30
[data]
set = "digits"
[model]
layers = [4, 3, 2]
[train]
batch = 8
local_steps = 2
lr = 0.5
[policy]
name = "dpsgd"
[topology]
kind = "ring"
"""

POLICIES = ("gist", "segmented_gossip", "gossipfl", "dpsgd", "epidemic", "topk", "fedavg", "local")
TOPOLOGIES = {
    "ring": "",
    "line": "",
    "star": "",
    "full": "",
    "torus": "",
    "regular": "degree = 3",
    "erdos_renyi": "probability = 0.7",
    "watts_strogatz": "degree = 4",
    "geometric": "radius = 0.6",
    "tree": "",
    "clustered": "clusters = 2",
    "file": "links = [[0, 1], [1, 2]]",
}


@pytest.fixture
def write(tmp_path: Path):
    def write_text(text: str) -> Path:
        path = tmp_path / "e.toml"
        path.write_text(text, "utf-8")
        return path

    return write_text


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path, overrides)
    return str(caught.value).replace(f"{path}:", "").splitlines()


def words(path: Path, *overrides: str, peers_max: int = 4) -> dict[str, int | float]:
    experiment = load_experiment(path, overrides)
    return experiment.config_words(360, 200, peers_max, 0, 1 / 16, 0.0)


# --- reading ---------------------------------------------------------------------------------------------------


def test_example_is_complete() -> None:
    experiment = load_experiment(EXAMPLE)
    assert experiment.experiment.nodes == 16
    assert experiment.policy.name == "gist" and experiment.policy.bits == 8 and experiment.policy.fifo == 10
    assert experiment.schedule.milestones == (0.40, 0.65, 0.75)
    assert experiment.link.auth and experiment.churn.leave == ()


def test_a_missing_option_takes_its_default(write) -> None:
    experiment = load_experiment(write(MINIMAL.replace('"dpsgd"', '"gist"')))
    policy = experiment.policy.model_dump()
    assert policy == {
        "name": "gist", "bits": 32, "error_feedback": False, "fifo": 10, "max_norm": 1000.0, "segments": 5, "sends": 7,
        "threshold": 5, "unit": "parameter", "score": "update", "reduce": "l2", "score_ema": 0.9, "base": 1.0,
        "spread": "uniform_with_replacement", "success": "sender", "success_base": 1.0,
    }  # fmt: skip
    assert experiment.schedule.policy == "constant" and experiment.schedule.patience == (0.30, 0.20, 0.20, 0.10)


@pytest.mark.parametrize(("policy", "topology"), list(itertools.product(POLICIES, TOPOLOGIES)))
def test_the_resolved_text_loads_as_an_equal_experiment(write, policy: str, topology: str) -> None:
    text = MINIMAL.replace('"dpsgd"', f'"{policy}"').replace('"ring"', f'"{topology}"') + TOPOLOGIES[topology]
    experiment = load_experiment(write(text)).resolved()
    assert load_experiment(write(experiment.dumps())) == experiment
    assert experiment.policy.fifo is not None


def test_everything_unusual_survives_the_round_trip(write) -> None:
    text = MINIMAL + (
        "[churn]\naway = 0.25\nspan = 3\nleave = [{node = 1, from = 2, to = 5}, {node = 0, from = 0, to = 1}]\n"
        "[link]\nbandwidth_kbps = [10, 90]\nloss = 1e-3\ndelay_ms = 5.5\njitter_ms = 0.25\ncorruption = 0.1\n"
        "[faults.groups]\nnorth = [0, 2]\n"
        '[[faults.event]]\nat = "round 1"\ndo = "corrupt_link"\nnodes = ["north", 1]\nrate = 0.25\n'
        '[[faults.event]]\nat = "round 2"\ndo = "heal"\n'
    )
    experiment = load_experiment(write(text)).resolved()
    again = load_experiment(write(experiment.dumps()))
    assert again == experiment
    assert [(a.node, a.from_, a.to) for a in again.churn.leave] == [(1, 2, 5), (0, 0, 1)]
    assert [(event.round, event.do, event.nodes, event.rate) for event in again.faults.event] == [
        (1, "corrupt_link", ("north", 1), 0.25),
        (2, "heal", (), None),
    ]


# --- overrides -------------------------------------------------------------------------------------------------


def test_overrides_are_toml_values_or_bare_words() -> None:
    experiment = load_experiment(
        EXAMPLE, ["train.lr=1", "model.layers=[64, 10]", "schedule.policy=adaloss", "link.auth=false"]
    )
    assert experiment.train.lr == 1.0 and experiment.model.layers == (64, 10)
    assert experiment.schedule.policy == "adaloss" and experiment.link.auth is False


def test_another_policy_leaves_only_the_old_ones_options_behind() -> None:
    policy = load_experiment(EXAMPLE, ["policy.name=topk", "policy.ratio=0.3"]).policy
    assert policy.model_dump() == {
        "name": "topk", "bits": 8, "error_feedback": False, "fifo": None, "max_norm": 1000.0, "ratio": 0.3,
    }  # fmt: skip
    assert load_experiment(EXAMPLE, ["data.partition=iid", "topology.kind=ring"]).topology.kind == "ring"


def test_an_override_of_the_old_policy_is_still_refused() -> None:
    (problem,) = problems(EXAMPLE, "policy.name=dpsgd", "policy.sends=3")
    assert problem.startswith("--set policy.sends=3: policy.sends: unknown key; allowed name, bits")


def test_overrides_are_named_in_problems() -> None:
    found = problems(EXAMPLE, "train.lr=fast", "nonsense", "foo.bar=1")
    assert "--set train.lr=fast: train.lr: is 'fast'; allowed a number" in found
    assert "--set nonsense: not an override; write section.key=value, such as train.lr=0.1" in found
    assert any(line.startswith("--set foo.bar=1: foo: unknown section; allowed experiment") for line in found)


# --- problems --------------------------------------------------------------------------------------------------


def test_every_problem_is_reported_at_once_with_its_line(write) -> None:
    text = (
        MINIMAL.replace("seed = 7", "seed = -1")
        .replace("rounds = 30", "roundz = 30")
        .replace('"dpsgd"', '"dpgsd"')
        .replace("batch = 8", "batch = 8.5")
        .replace("layers = [4, 3, 2]", "layers = [\n  4,\n  0,  # hidden\n]")
    )
    assert problems(write(text)) == [
        "3: experiment.seed: is -1; allowed >= 0",
        "1: experiment.rounds: is missing; add it to [experiment]",
        "5: experiment.roundz: unknown key; allowed name, seed, nodes, rounds, eval_every; did you mean 'rounds'?",
        "11: model.layers[1]: is 0; allowed >= 1",
        "14: train.batch: is 8.5; allowed a whole number",
        "18: policy.name: is 'dpgsd'; allowed gist, segmented_gossip, gossipfl, dpsgd, epidemic, topk, fedavg, local; "
        "did you mean 'dpsgd'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("nodes = 6", "nodes = 65535", "4: experiment.nodes: is 65535; allowed <= 65534"),
        ("seed = 7", "seed = true", "3: experiment.seed: is true; allowed a whole number"),
        ('"small"', '"a b"', "2: experiment.name: is 'a b'; allowed up to 64 letters, digits and . _ -"),
        ("lr = 0.5", "lr = 1e-60", "13: train.lr: is 1e-60: does not fit a 32-bit float"),
        ("lr = 0.5", "lr = nan", "13: train.lr: is nan; allowed"),
        ("lr = 0.5", "lr = 0.5\nrounds = 3", "14: train.rounds: unknown key;"),
        ('"dpsgd"', '"dpsgd"\nbits = 5', "16: policy.bits: is 5; allowed 32, 16, 8, 4, 2, 1"),
        ('"dpsgd"', '"topk"\nerror_feedback = true', "16: policy.error_feedback: does not apply to 'topk'; remove it"),
        ('"dpsgd"', '"gist"\nfifo = 4', "14: policy.threshold: is 5, above policy.fifo 4; raise policy.fifo to 5"),
        ('"digits"', '"digits"\nalpha = 0.5', "8: data.alpha: partition 'iid' has no such option; remove it"),
        ('"digits"', '"digits"\nvalidation = 0.1234', "8: data.validation: is 0.1234; allowed steps of 0.001"),
        ("[policy]", "[schedule]\nmilestones = [0.5, 1.5]\n[policy]", "15: schedule.milestones[1]: is 1.5;"),
        ("[policy]", "[schedule]\npolicy = 'adaloss'\nfloor = 0.9\n[policy]", "16: schedule.floor: is 0.9, above"),
        ('"ring"', '"regular"\ndegree = 6', "18: topology.degree: is 6 with 6 nodes; allowed 1 .. 5"),
        ('"ring"', '"watts_strogatz"\ndegree = 3', "18: topology.degree: is 3; allowed even numbers below the 6 nodes"),
        ('"ring"', '"torus"\nrows = 4', "18: topology.rows: is 4, no divisor of 6 nodes; allowed divisors of 6"),
        ('"ring"', '"torus"\nrows = 2\ncolumns = 2', "18: topology.rows: 2 * 2 is not 6 nodes"),
        ('"ring"', '"clustered"\nclusters = 7', "18: topology.clusters: is 7; allowed 1 .. 6"),
        ('"ring"', '"erdos_renyi"', "16: topology.probability: is missing; add it to [topology]"),
        ('"ring"', '"file"', "16: topology: needs path or links; give one of the two"),
        ('"ring"', '"file"\nlinks = [[0, 1],\n[2, 6]]', "19: topology.links[1]: there is no node 6; allowed 0 .. 5"),
        ("[policy]", "[link]\nbandwidth_kbps = [9, 3]\n[policy]", "15: link.bandwidth_kbps: [9, 3] runs backwards"),
        ("[policy]", "[link]\nloss = 1.5\n[policy]", "15: link.loss: is 1.5; allowed <= 1"),
        ("[policy]", "[churn]\nleave = [{node = 6, from = 1, to = 2}]\n[policy]", "15: churn.leave[0].node: there is"),
        ("[policy]", "[churn]\nleave = [{node = 1, from = 2, too = 2}]\n[policy]", "15: churn.leave[0].to: is missing"),
        ("[data]\nset = \"digits\"\n", "", "1: data: the section is missing; add [data]"),
    ],
)  # fmt: skip
def test_a_problem_says_where_what_and_the_mend(write, old: str, new: str, expected: str) -> None:
    found = problems(write(MINIMAL.replace(old, new)))
    assert any(line.startswith(expected) for line in found), found


def test_success_needs_validation(write) -> None:
    path = write(MINIMAL.replace('"dpsgd"', '"gist"').replace('"digits"', '"digits"\nvalidation = 0'))
    (problem,) = problems(path)
    assert "policy.success: 'sender' needs validation samples; set data.validation above 0" in problem
    assert load_experiment(path, ["policy.success=equal"]).data.validation == 0


def test_odd_regular_graphs_are_refused(write) -> None:
    path = write(MINIMAL.replace("nodes = 6", "nodes = 5").replace('"ring"', '"regular"\ndegree = 3'))
    assert problems(path) == ["18: topology.degree: 3 * 5 nodes is odd; make one of the two even"]


def test_a_key_of_another_section_is_pointed_out(write) -> None:
    (problem,) = problems(write(MINIMAL.replace("rounds = 30", "rounds = 30\nlocal_steps = 3")))
    assert problem.endswith("did you mean 'train.local_steps'?")


def test_files_that_are_not_experiments(tmp_path: Path, write) -> None:
    assert problems(write("[experiment\n")) == [
        "1: not TOML: expected ']' at the end of a table declaration; column 12"
    ]
    assert "cannot be read: No such file" in problems(tmp_path / "none.toml")[0]
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in problems(tmp_path / "bad.toml")[0]


def test_links_from_a_file(tmp_path: Path, write) -> None:
    (tmp_path / "links.txt").write_text("# a triangle\n0 1\n2, 1\n0 2  # done\n\n")
    path = write(MINIMAL.replace('"ring"', '"file"\npath = "links.txt"'))
    experiment = load_experiment(path)
    assert experiment.topology.model_dump()["links"] == ((0, 1), (1, 2), (0, 2))
    assert [peers.tolist() for peers in experiment.plan().peers(0)] == [[1, 2], [0, 2], [0, 1], [], [], []]
    assert load_experiment(write(experiment.dumps())) == experiment  # no longer depends on links.txt


def test_problems_of_a_file_of_links_have_its_lines(tmp_path: Path, write) -> None:
    (tmp_path / "links.txt").write_text("0 1\n1 0\n2 2\n2 9\n3\n")
    found = problems(write(MINIMAL.replace('"ring"', '"file"\npath = "links.txt"')))
    found = [line.removeprefix(f"{tmp_path / 'links.txt'}:") for line in found]
    assert found == [
        "2: the link 0 1 stands on line 1 already; write two node ids, 0 .. 5",
        "3: node 2 is linked to itself; write two node ids, 0 .. 5",
        "4: there is no node 9; write two node ids, 0 .. 5",
        "5: '3' is not a link; write two node ids, 0 .. 5",
    ]


def test_a_graph_in_parts_is_allowed_and_named(write) -> None:
    path = write(MINIMAL.replace('"ring"', '"file"\nlinks = [[0, 2], [1, 3], [3, 4]]'))
    (warning,) = load_experiment(path).warnings()
    assert "falls into 3 parts that never meet: {0, 2}, {1, 3-4}, {5}" in warning
    assert load_experiment(path, ["policy.name=fedavg"]).warnings() == []
    assert load_experiment(EXAMPLE, ["topology.kind=ring"]).warnings() == []


# --- words -----------------------------------------------------------------------------------------------------


def test_words_are_exactly_those_of_the_image_and_binary32() -> None:
    found = words(EXAMPLE, "experiment.seed=18446744073709551614", "train.momentum=0.9")
    assert list(found) == list(CONFIG_WORDS)
    for name, kind in CONFIG_WORDS.items():
        assert type(found[name]) is (float if kind == "f" else int), name
        if kind == "f":
            assert found[name] == float(np.float32(found[name])), name
    assert (found["seed_lo"], found["seed_hi"]) == (0xFFFFFFFE, 0xFFFFFFFF)
    assert [found[f"input_{axis}"] for axis in ("height", "width", "channels")] == [1, 1, 64]
    assert [(found[f"layer{i}_outputs"], found[f"layer{i}_relu"]) for i in range(3)] == [(32, 1), (10, 0), (0, 0)]
    assert (found["layers"], found["bits"], found["val_permille"], found["lr_policy"]) == (2, 8, 200, 1)


@pytest.mark.parametrize(
    ("rounds", "fraction", "expected"),
    # Each product is whole or not as written; in doubles 0.07 * 100 and 0.55 * 100 are above 7 and 55.
    [(30, 0.4, 12), (30, 0.65, 20), (30, 0.75, 23), (100, 0.07, 7), (100, 0.55, 55), (3, 1.0, 3), (1, 0.001, 1)],
)
def test_milestones_are_the_ceiling_of_the_number_written(rounds: int, fraction: float, expected: int) -> None:
    found = words(EXAMPLE, f"experiment.rounds={rounds}", f"schedule.milestones=[{fraction}]")
    assert (found["stair_count"], found["stair_at0"], found["stair_at1"]) == (1, expected, 0)
    found = words(EXAMPLE, f"experiment.rounds={rounds}", f"schedule.patience=[{fraction}]")
    assert (found["loss_count"], found["loss_patience0"]) == (1, expected)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["policy.name=topk", "policy.ratio=0.1"], {"policy": 5, "top": 241, "fifo": 4, "threshold": 1}),  # P = 2410
        (["policy.name=topk", "policy.ratio=1e-9"], {"top": 1}),
        (["policy.name=gossipfl"], {"policy": 2, "ratio24": 2**23, "fifo": 1}),
        (["policy.name=gossipfl", "policy.ratio=1.0"], {"ratio24": 2**24}),
        (["policy.name=dpsgd"], {"policy": 3, "fifo": 4, "base": 1.0}),
        (["policy.name=dpsgd", "policy.fifo=2"], {"fifo": 2}),
        (["policy.name=segmented_gossip", "policy.pulls=3"], {"policy": 1, "segments": 5, "pulls": 3, "fifo": 15}),
        (["policy.name=epidemic"], {"policy": 4, "fanout": 3, "fifo": 15}),
        (["policy.name=epidemic", "policy.fanout=1"], {"fifo": 12}),
        (["policy.name=fedavg"], {"policy": 6, "fifo": 1}),
        (["policy.name=local"], {"policy": 7, "fifo": 1}),
        (["policy.unit=channel", "policy.score=fisher"], {"unit": 2, "score": 4, "reduce": 0}),
        (["policy.success=verified", "policy.spread=balanced"], {"success": 2, "spread": 2}),
        (["schedule.policy=adastair+adaloss", "schedule.reference=ema"], {"lr_policy": 3, "loss_reference": 2}),
        (["model.init=he", "link.auth=false", "link.mtu_bytes=64"], {"init": 1, "auth": 0, "mtu": 64}),
    ],
)  # fmt: skip
def test_words_of_the_options(overrides: list[str], expected: dict[str, int]) -> None:
    found = words(EXAMPLE, *overrides)
    assert {name: found[name] for name in expected} == expected


def test_the_plan_carries_links_losses_and_absences(write) -> None:
    text = MINIMAL + "[churn]\nleave = [{node = 2, from = 1, to = 3}]\n[link]\nloss = 0.5\n"
    plan = load_experiment(write(text)).plan()
    assert [plan.present(r)[2] for r in range(4)] == [True, False, False, True]
    assert plan.loss24 == 2**23 and plan.peers_max == 2
    plan = load_experiment(write(text), ["policy.name=fedavg"]).plan()
    assert [peers.tolist() for peers in plan.peers(0)] == [[SERVER]] * 6


FAULTS = """
[faults.groups]
north = [0, 1]
[[faults.event]]
at = "round 5"
do = "kill"
nodes = [3, "north"]
[[faults.event]]
at = "round 9"
do = "restart"
nodes = ["north"]
[[faults.event]]
at = "round 4"
do = "partition"
nodes = [4]
[[faults.event]]
at = "round 6"
do = "corrupt_link"
nodes = [2]
[[faults.event]]
at = "round 8"
do = "heal"
nodes = [2, 5]
"""


def test_faults_become_absences_partitions_and_noise(write) -> None:
    plan = load_experiment(write(MINIMAL + FAULTS)).plan()
    away = [[node for node in range(6) if not plan.present(r)[node]] for r in (4, 5, 8, 9, 29)]
    assert away == [[], [0, 1, 3], [0, 1, 3], [3], [3]]
    assert plan.partitions == (Partition((4,), 4, 30),)
    assert plan.noises == (Noise((2,), 6, 8, 2**23),)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('at = "round 5"', 'at = "round 30"', "22: faults.event[0].at: is 'round 30'; allowed 'round 0' .. 'round 29'"),
        ('at = "round 5"', "at = 5", "22: faults.event[0].at: is 5; allowed a text in quotes"),
        ('at = "round 5"', 'at = "7"', "22: faults.event[0].at: is '7': no time; allowed 'round 7'"),
        ('do = "kill"', 'do = "kil"', "23: faults.event[0].do: is 'kil'; allowed kill, restart, pause, resume, "),
        ('do = "kill"', 'do = "kill"\nrate = 0.5', "24: faults.event[0].rate: kill has no such option; remove it"),
        ('do = "kill"', 'do = "resume"', "21: faults.event[0]: node 0 is not paused; pause it before, or restart it"),
        (
            'do = "restart"',
            'do = "kill"',
            "25: faults.event[1]: node 0 is away since round 5 (kill); restart it before",
        ),
        ("nodes = [4]", "nodes = []", "32: faults.event[2].nodes: is missing; name the nodes to partition, by number"),
        ("nodes = [4]", "nodes = [6]", "32: faults.event[2].nodes: there is no node 6; allowed 0 .. 5"),
        (
            "nodes = [4]",
            'nodes = ["south"]',
            "32: faults.event[2].nodes: there is no group 'south'; groups of [faults.",
        ),
        ("north = [0, 1]", "north = [7]", "20: faults.groups.north: there is no node 7; allowed 0 .. 5"),
        ("nodes = [2, 5]", "nodes = [5]", "37: faults.event[4]: nothing to heal; partition or corrupt_link these"),
        ("[faults.groups]", "[link]\nauth = false\n[faults.groups]", "37: faults.event[3].do: would go unnoticed"),
        ("nodes = [4]", "nodes = [4]\nfor = 3", "33: faults.event[2].for: unknown key; allowed at, do, nodes, rate"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(write, old: str, new: str, expected: str) -> None:
    found = problems(write(MINIMAL + FAULTS.replace(old, new, 1)))
    assert any(line.startswith(expected) for line in found), found


def test_what_links_cannot_do_is_refused(write) -> None:
    text = MINIMAL + "[link]\nauth = false\ncorruption = 0.1\njitter_ms = 2.0\ndelay_ms = 1.0\n"
    assert problems(write(text)) == [
        "21: link.jitter_ms: is 2, above delay_ms 1; lower it",
        "20: link.corruption: would go unnoticed: frames have no tags; set auth = true",
    ]


# --- lines -----------------------------------------------------------------------------------------------------


def test_lines_of_every_kind_of_key() -> None:
    text = '''# [not] = a table
a.b = 1
"c d" = """
x = 1
[no]
"""  # closed
[t] # table
list = [ # opened
  1,
  [2, "]"], {k = 3,
             l = '#'}
]
after = { x.y = 1, z = [true] }
[[many]]
v = 1
[[many]]
w.x = 2
[many.inner]
u = 3
'''
    lines = locate(text)
    expected = {
        ("a", "b"): 2, ("c d",): 3, ("t",): 7, ("t", "list"): 8, ("t", "list", 0): 9, ("t", "list", 1): 10,
        ("t", "list", 1, 1): 10, ("t", "list", 2, "k"): 10, ("t", "list", 2, "l"): 11, ("t", "after", "x", "y"): 13,
        ("t", "after", "z", 0): 13, ("many", 0, "v"): 15, ("many", 1): 16, ("many", 1, "w", "x"): 17,
        ("many", 1, "inner", "u"): 19,
    }  # fmt: skip
    assert {path: lines.get(path) for path in expected} == expected
    assert ("x",) not in lines and ("no",) not in lines
    assert line_of(lines, ("t", "list", 9, "q")) == 8 and line_of(lines, ("nowhere",)) == 1
