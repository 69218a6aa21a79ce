"""Calls of classes that do not fit name the class and what it takes; reasons to compile again name values."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import data, nn, optim
from weft.errors import ArgumentError

W = weft.ones(2, requires_grad=True)

MISFITS = [
    (lambda: nn.Linear(3, 4, biass=False), "Linear: unknown keyword 'biass'", "did you mean bias=? It takes"),
    (lambda: nn.Conv2d(3, 4, 3, strid=2), "Conv2d: unknown keyword 'strid'", "did you mean stride=?"),
    (lambda: nn.MaxPool2d(kernel=2), "MaxPool2d: unknown keyword 'kernel'", "kernel_size"),
    (lambda: nn.LSTM(3, 4, layers=2), "LSTM: unknown keyword 'layers'", "num_layers"),
    (lambda: nn.ReLU(inplac=True), "ReLU: unknown keyword 'inplac'", "inplace"),
    (lambda: nn.Linear(3), "Linear: missing 1 required positional argument: 'out_features'", "in_features"),
    (lambda: nn.Linear(1, 2, True, 4, 5, 6), "Linear: takes at most 5 arguments by position, got 6", "bias"),
    (lambda: optim.Adam([W], lrr=0.1), "Adam: unknown keyword 'lrr'", "did you mean lr=?"),
    (lambda: optim.lr_scheduler.StepLR(None, step=3), "StepLR: unknown keyword 'step'", "step_size"),
    (lambda: optim.EMA(nn.Linear(1, 1), decayy=3), "EMA: unknown keyword 'decayy'", "did you mean decay=?"),
    (lambda: data.Loader([1], batchsize=2), "Loader: unknown keyword 'batchsize'", "batch_size"),
    (lambda: data.DataLoader([1], shufle=True), "DataLoader: unknown keyword 'shufle'", "shuffle=?"),
]


@pytest.mark.parametrize(("act", "text", "hint"), MISFITS)
def test_wrong_call_of_a_class_names_it_and_what_it_takes(
    act: Callable[[], Any], text: str, hint: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        act()
    assert str(caught.value).splitlines()[0] == text
    assert hint in (caught.value.hint or "")


def test_error_inside_a_constructor_of_the_users_stays_what_it_is() -> None:
    class Mine(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 3)
            int("a", nonsense=1)

    with pytest.raises(TypeError, match="nonsense"):
        Mine()

    class Other(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 3, biass=True)

    with pytest.raises(ArgumentError, match="Linear: unknown keyword 'biass'"):
        Other()


class Box:
    """Something that compiled code reads."""

    w: Any = None


def reasons(caplog: pytest.LogCaptureFixture, *changes: Callable[[], Any]) -> list[str]:
    with caplog.at_level(logging.WARNING, "weft.compile"):
        for change in changes:
            change()
    return [
        record.getMessage().partition("compiled again, ")[2].rpartition(" (")[0] for record in caplog.records
    ]


def test_reasons_name_the_value_and_tell_tensors_by_type(caplog: pytest.LogCaptureFixture) -> None:
    box, x = Box(), weft.ones(2)
    f = weft.compile(lambda x: x * box.w.sum())

    def call(w: Any) -> None:
        box.w = w
        f(x)

    told = reasons(caplog, *[lambda w=w: call(w) for w in (weft.ones(3), weft.ones(4), weft.ones((2, 2)))])
    assert told == [
        "the attribute 'w' of a Box was f32[3] and is f32[4]",
        "the attribute 'w' of a Box was f32[4] and is f32[2,2]",
    ]
    assert [v.reason for v in sorted(f.versions, key=lambda v: v.number)] == ["", *told]


def test_reason_of_arguments_in_another_structure_lists_them(caplog: pytest.LogCaptureFixture) -> None:
    f = weft.compile(lambda x, d: x * d["a"])
    x = weft.ones(2)
    told = reasons(caplog, lambda: f(x, {"a": 1.0}), lambda: f(x, {"a": 1.0, "b": 2}))
    assert told == ["the arguments were (x, d.a) and are (x, d.a, d.b)"]


def test_reason_names_the_parameter_that_changed(caplog: pytest.LogCaptureFixture) -> None:
    model, x = nn.Linear(2, 2), weft.ones((1, 2))
    f = weft.compile(lambda x: model(x))
    told = reasons(caplog, lambda: f(x), lambda: model.weight.requires_grad_(False), lambda: f(x))
    assert told == ["the tensor model.weight was f32[2,2] that requires grad and is f32[2,2]"]
    assert "Like(" not in " ".join(told)


class Scaled(nn.Module):
    """A layer, and plain values beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale, self.mode = nn.Linear(2, 2), 1.5, "up"

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        """x (..., 2) to (..., 2)."""
        return self.layer(x) * self.scale * (1.0 if self.mode == "up" else -1.0)


@pytest.mark.parametrize("whole", [True, False])
def test_reasons_name_attributes_of_modules(caplog: pytest.LogCaptureFixture, whole: bool) -> None:
    model, x = Scaled(), weft.ones((1, 2))
    f = weft.compile(model if whole else lambda x: model(x))

    def change(name: str, value: Any) -> None:
        setattr(model, name, value)
        f(x)

    told = reasons(
        caplog,
        lambda: f(x),
        lambda: change("scale", 2.5),
        lambda: change("mode", "down"),
        lambda: change("layer", nn.Linear(2, 2, bias=False)),
    )
    assert told[:2] == [
        "the attribute 'scale' of a Scaled was 1.5 and is 2.5",
        "the attribute 'mode' of a Scaled was 'up' and is 'down'",
    ]
    assert told[2].startswith("the attribute 'layer' of a Scaled was Linear(in_features=2,")


def test_parameters_may_be_frozen_between_compiled_steps(caplog: pytest.LogCaptureFixture) -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), weft.ones((2, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    def freeze() -> None:
        model[0].weight.requires_grad = False
        step(x)

    told = reasons(caplog, lambda: step(x), lambda: step(x), freeze)
    assert told[-1] == "the tensor model.0.weight was f32[3,3] that requires grad and is f32[3,3]"
    frozen, trained = model[0].weight.clone(), model[1].weight.clone()
    step(x)
    assert (model[0].weight == frozen).all()
    assert not (model[1].weight == trained).all()
