"""Tables of what a call of a module does, and the text of modules."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        x = self.features(x).mean(axis=(2, 3))
        return self.head(x) + self.head(x)


def test_summary_counts_shapes_parameters_memory_and_flops() -> None:
    net = Net()
    summary = net.summary(weft.ones((2, 1, 6, 6)))
    rows = {row.path: row for row in summary.rows}
    assert list(rows) == ["", "features", "features.0", "features.1", "features.2", "head"]
    assert rows["features.0"].output == (2, 4, 4, 4)
    assert rows["features.0"].parameters == 40
    assert rows["features.0"].flops == 2 * 128 * 9 + 128
    assert rows["features.0"].memory >= 40 * 4 + 128 * 4
    assert rows["head"].calls == 2
    assert rows["head"].flops == 2 * (2 * 2 * 2 * 4 + 4)
    assert rows[""].output == (2, 2)
    assert rows[""].flops > rows["features"].flops + rows["head"].flops
    assert (summary.parameters, summary.frozen, summary.parameter_bytes) == (58, 0, 232)
    text = str(summary)
    assert "    0: Conv2d" in text
    assert "head: Linear x2" in text
    assert text.endswith("58 parameters (232 B), all trained")


def test_summary_changes_nothing() -> None:
    net = Net()
    before = net.state_dict()
    net.summary(weft.TensorType((2, 1, 6, 6), weft.float32))
    for name, value in net.state_dict().items():
        assert (value == before[name]).all(), name
    assert not net.features[0]._hooks


def test_summary_of_a_part_of_a_module_has_paths_of_its_own() -> None:
    net = Net()
    assert [row.path for row in net.features.summary(weft.ones((1, 1, 6, 6))).rows] == ["", "0", "1", "2"]
    assert [row.path for row in net.summary(weft.ones((1, 1, 6, 6)), depth=1).rows] == [
        "",
        "features",
        "head",
    ]


def test_summary_counts_every_turn_of_a_loop() -> None:
    short, long = (nn.LSTM(4, 8).summary(weft.ones((n, 2, 4))).rows[0].flops for n in (5, 50))
    assert long == 10 * short


def test_summary_of_modules_inside_a_loop_of_the_graph() -> None:
    class Repeat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False)

        def forward(self, x: Any) -> Any:
            for _ in weft.arange(7):
                x = weft.tanh(self.layer(x))
            return x

    rows = {row.path: row for row in Repeat().summary(weft.ones((2, 4))).rows}
    assert rows["layer"].flops == 7 * 2 * 8 * 4
    assert rows[""].flops == 7 * (2 * 8 * 4 + 8)


def test_summary_of_results_that_are_trees() -> None:
    class Trees(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"a": x, "b": (x[0], "text")}

    assert Trees().summary(weft.ones((5, 2))).rows[0].output == ((5, 2), (2,), None)
    row = nn.LSTM(4, 8).summary(weft.ones((5, 2, 4))).rows[0]
    assert row.output == ((5, 2, 8), ((1, 2, 8), (1, 2, 8)))


def test_text_tells_of_frozen_parameters() -> None:
    net = nn.Sequential(nn.Linear(100, 20), nn.Linear(20, 1, bias=False))
    net[0].requires_grad_(False)
    assert repr(net) == (
        "Sequential(  # 2,040 parameters, 2,020 frozen\n"
        "  (0): Linear(in_features=100, out_features=20, bias=True)  # 2,020, 2,020 frozen\n"
        "  (1): Linear(in_features=20, out_features=1, bias=False)  # 20\n"
        ")"
    )
    assert net.summary(weft.ones((1, 100))).frozen == 2020
    assert str(net.summary(weft.ones((1, 100)))).endswith("2,020 of them frozen")


def test_every_module_has_a_text() -> None:
    from tests.nn.cases import CASES

    for name, case in CASES.items():
        layer = case.make(nn, weft.tensor)
        text = repr(layer)
        assert text.startswith(type(layer).__name__ + "("), name
        assert "object at" not in text, name
