"""The page about a memory plan in a real browser: boxes where the plan says, names that can be read."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

from codegen.memory import Buffer, pack
from codegen.plan_page import Memory, page, program_page
from codegen.program import Settings, compile_graph
from codegen.read import read_model
from tests.ui.browser import look, needs_browser

ZOO = Path(__file__).parent.parent.parent / "models" / "zoo"

LOOK = """
  const frame = node => { const b = node.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const contrast = node => {
    const parts = color => color.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = color => parts(color).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const card = getComputedStyle(document.querySelector('.card')).backgroundColor;
    const pair = [light(getComputedStyle(node).fill), light(card)];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  };
  return [...document.querySelectorAll('svg')].map(svg => ({
    name: document.getElementById(svg.getAttribute('aria-labelledby').split(' ')[0]).textContent,
    description: document.getElementById(svg.getAttribute('aria-labelledby').split(' ')[1]).textContent,
    frame: frame(svg),
    boxes: [...svg.querySelectorAll('.box')].map(box => ({
      hint: box.querySelector('title').textContent,
      frame: frame(box.querySelector('rect')),
      label: box.querySelector('text') && {
        text: box.querySelector('text').textContent,
        frame: frame(box.querySelector('text')),
        contrast: contrast(box.querySelector('text')),
      },
    })),
    names: [...svg.querySelectorAll('text.upright, text.x')].map(frame),
    peak: frame(svg.querySelector('.peak line')),
    scrolls: getComputedStyle(svg.parentNode).overflowX,
  }));
"""

BUFFERS = (
    Buffer("net/state", 1024, 0, 5, pinned=True),
    Buffer("net/first;net/fused <b>", 4096, 0, 1),
    Buffer("net/second", 2048, 1, 2),
    Buffer("net/third", 8192, 2, 3),
    Buffer("net/fourth", 512, 3, 5),
    Buffer("net/nothing", 0, 4, 4),
)
CALLS = ["CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "AVERAGE_POOL_2D", "FULLY_CONNECTED", "SOFTMAX"]


def inside(frame: list[float], outer: list[float], slack: float = 1.5) -> bool:
    return (
        frame[0] >= outer[0] - slack
        and frame[1] >= outer[1] - slack
        and frame[2] <= outer[2] + slack
        and frame[3] <= outer[3] + slack
    )


@needs_browser
def test_boxes_are_where_the_plan_says(tmp_path: Path) -> None:
    plan = pack(BUFFERS)
    path = tmp_path / "plan.html"
    memory = Memory("Internal RAM", BUFFERS, plan, limit_bytes=12_000)
    path.write_text(page("Memory of net", "net.tflite", [memory], CALLS, [("net/first", "weights", 100)]))

    shown = look(path, 1200, LOOK)
    assert shown["failures"] == [] and shown["requests"] == [] and shown["overflow"] <= 0
    (chart,) = shown["seen"]
    assert chart["name"] == "Internal RAM" and f"{plan.peak_bytes:,} bytes" in chart["description"]

    boxes = {box["hint"].split(":")[0]: box for box in chart["boxes"]}
    assert set(boxes) == {buffer.name for buffer in BUFFERS if buffer.size_bytes}
    floor = boxes["net/state"]["frame"][3]
    per_byte = (floor - chart["peak"][1]) / plan.peak_bytes
    for buffer, offset in zip(BUFFERS, plan.offsets, strict=True):
        if buffer.size_bytes:
            bottom, top = floor - offset * per_byte, floor - (offset + buffer.size_bytes) * per_byte
            frame = boxes[buffer.name]["frame"]
            assert abs(frame[3] - bottom) < 2 and abs(frame[1] - top) < 2
    for a, b in combinations(chart["boxes"], 2):
        left, top, right, bottom = (
            f(p, q) for f, p, q in zip((max, max, min, min), a["frame"], b["frame"], strict=True)
        )
        assert right - left <= 0.5 or bottom - top <= 0.5

    for box in chart["boxes"]:
        label = box["label"]
        assert label is None or (inside(label["frame"], box["frame"]) and label["contrast"] > 7)
    assert boxes["net/first;net/fused <b>"]["label"]["text"] == "first"
    assert all(inside(frame, chart["frame"]) for frame in chart["names"])


@needs_browser
def test_a_model_of_many_calls_is_read_on_a_telephone_in_the_dark(tmp_path: Path) -> None:
    file = ZOO / "patterns_mobilenet" / "patterns_mobilenet_int8.tflite"
    program = compile_graph(read_model(file), Settings(psram=True, ram_limit_bytes=4096))
    path = tmp_path / "plan.html"
    path.write_text(program_page(program))

    bright, dark = look(path, 1200, LOOK), look(path, 375, LOOK, dark=True)
    assert bright["ground"] != dark["ground"]
    for shown in (bright, dark):
        assert shown["failures"] == [] and shown["requests"] == [] and shown["overflow"] <= 0
        assert [chart["name"] for chart in shown["seen"]] == ["Internal RAM", "PSRAM"]
        for chart in shown["seen"]:
            assert chart["scrolls"] == "auto"
            assert all(inside(frame, chart["frame"]) for frame in chart["names"])
            labels = [box["label"] for box in chart["boxes"] if box["label"]]
            assert labels and min(label["contrast"] for label in labels) > 7
            for box in chart["boxes"]:
                assert box["label"] is None or inside(box["label"]["frame"], box["frame"])


def test_the_page_adds_up(tmp_path: Path) -> None:
    plan = pack(BUFFERS)
    flash = [("net/a", "bias", 40), ("net/b", "weights", 900), ("net/a", "weights", 60)]
    text = page("Memory <of> net", "a&b.tflite", [Memory("RAM", BUFFERS, plan)], CALLS, flash)
    assert "Memory &lt;of&gt; net" in text and "a&amp;b.tflite" in text and "<b>" not in text
    assert "<script" not in text and "http" not in text
    order = [text.index(f">{size}</td>") for size in (900, 60, 40)]
    assert all(a < b for a, b in pairwise(order))
    assert ">1,000</td>" in text  # flash, all together
    # At call 2 the state, the second and the third are alive: 1,024 + 2,048 + 8,192.
    assert "Alive at call 2 (ADD), where most is" in text and ">11,264</td>" in text
    assert text == page("Memory <of> net", "a&b.tflite", [Memory("RAM", BUFFERS, plan)], CALLS, flash)


def test_nothing_to_place_is_said() -> None:
    text = page("Memory", "m.tflite", [Memory("RAM", (), pack([]))], [], [])
    assert "nothing is placed here" in text and "no constants" in text
