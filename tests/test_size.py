"""What `gossamer experiment size` says about frozen layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.cli import main

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits_cnn.toml"


def test_freezing_saves_what_the_columns_say(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "size", str(EXAMPLE), "--set", "train.trainable=1"]) == 0
    *parts, total, saved = (line.split(maxsplit=2) for line in capfd.readouterr().out.splitlines())
    sizes = {name: (int(now.replace(",", "")), int(whole.replace(",", ""))) for now, whole, name in parts}
    dense, convs = 64 * 10 + 10, 9 * 8 + 8 + 9 * 8 * 16 + 16
    assert sizes["weights"] == (4 * dense, 4 * (dense + convs))
    now, whole = (sum(column) for column in zip(*sizes.values(), strict=True))
    assert [int(number.replace(",", "")) for number in total[:2]] == [now, whole]
    assert int(saved[0].replace(",", "")) == whole - now
    assert " ".join(saved).endswith(f"their {4 * convs:,} bytes are read from the image")
    assert sizes["activations, outgoing"][0] < sizes["activations, outgoing"][1]
