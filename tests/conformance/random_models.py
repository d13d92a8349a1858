"""Draw models of every kind of layer from a seed, as an experiment file describes them."""

from __future__ import annotations

import random
from typing import Any

Table = dict[str, Any]


class _Drawer:
    """Add layers one by one, and keep the shape that the next one reads."""

    def __init__(self, draw: random.Random, size: tuple[int, int, int]) -> None:
        self.draw = draw
        self.height, self.width, self.channels = size
        self.layers: list[Table] = []
        self.owners: list[str] = []  # names of layers with parameters
        self.count = 1  # of parameters, about

    def add(self, kind: str, **options: Any) -> None:
        self.layers.append({"kind": kind, **options})

    def own(self, kind: str, **options: Any) -> None:
        """Add a layer with parameters; now and then it gets a name."""
        if self.draw.random() < 0.5:
            options["name"] = f"l{len(self.layers)}"
            self.owners.append(options["name"])
        self.add(kind, activation=self.draw.choice(["none", "relu", "relu"]), **options)

    def window(self, most: int = 3) -> tuple[list[int], list[int], str]:
        """Draw a window that fits, and move on by it."""
        draw = self.draw
        padding = draw.choice(["valid", "same"])
        kernel, stride = [], []
        for axis in ("height", "width"):
            n = getattr(self, axis)
            k = draw.randint(1, most if padding == "same" else min(most, n))
            s = draw.choice([1, 1, 2, 3])
            setattr(self, axis, (n - k) // s + 1 if padding == "valid" else (n + s - 1) // s)
            kernel.append(k)
            stride.append(s)
        return kernel, stride, padding

    def divisor(self) -> int:
        return self.draw.choice([n for n in range(1, self.channels + 1) if self.channels % n == 0])

    # --- one layer, or a few that belong together ----------------------------------------------------------------

    def conv(self) -> None:
        groups = self.divisor()
        filters = groups * self.draw.randint(1, max(1, 8 // groups))
        kernel, stride, padding = self.window(4)
        self.own("conv", filters=filters, kernel=kernel, stride=stride, padding=padding, groups=groups)
        self.channels = filters

    def depthwise(self) -> None:
        multiplier = self.draw.randint(1, 2) if self.channels < 8 else 1
        kernel, stride, padding = self.window()
        self.own("depthwise", multiplier=multiplier, kernel=kernel, stride=stride, padding=padding)
        self.channels *= multiplier

    def group_norm(self) -> None:
        self.own("group_norm", groups=self.divisor())

    def pool(self) -> None:
        kind = self.draw.choice(["max_pool", "average_pool"])
        size, stride, padding = self.window()
        self.add(kind, size=size, stride=stride, padding=padding)

    def dropout(self) -> None:
        self.add("dropout", rate=self.draw.choice([0.1, 0.5, 0.0]))

    def residual(self) -> None:
        if not self.layers:
            self.conv()
        name = self.layers[-1].setdefault("name", f"l{len(self.layers) - 1}")
        kernel = [self.draw.randint(1, 3), self.draw.randint(1, 3)]
        self.own("conv", filters=self.channels, kernel=kernel, padding="same")
        if self.draw.random() < 0.5:
            self.group_norm()
        self.layers.append({"kind": "add", "from": name, "activation": self.draw.choice(["none", "relu"])})

    def end(self, classes: int) -> None:
        draw = self.draw
        if draw.random() < 0.25:
            self.add("conv", filters=classes, kernel=1)
            self.add("global_average_pool")
            return
        if draw.random() < 0.3:
            self.add("flatten")
        if draw.random() < 0.4:
            self.own("dense", width=draw.randint(1, 24))
        self.add("dense", width=classes, name="logits")
        self.owners.append("logits")


def random_model(draw: random.Random, size: tuple[int, int, int], classes: int) -> tuple[Table, Any]:
    """Return the keys of [model] that describe it, and train.trainable."""
    drawer = _Drawer(draw, size)
    kinds = [drawer.conv, drawer.depthwise, drawer.group_norm, drawer.pool, drawer.dropout, drawer.residual]
    for kind in draw.choices(kinds, [4, 2, 2, 2, 1, 2], k=draw.randint(1, 5)):
        kind()
    drawer.end(classes)
    owners = sum("activation" in layer and layer["kind"] != "add" for layer in drawer.layers)
    trainable: Any = "all"
    if draw.random() < 0.3:
        trainable = draw.randint(1, max(1, owners))
    elif drawer.owners and draw.random() < 0.2:
        trainable = draw.sample(drawer.owners, draw.randint(1, len(drawer.owners)))
    return {"input": list(size), "layers": drawer.layers}, trainable
