"""Tracebacks of mistakes show lines of the user alone, whichever object of weft was called."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import data, nn, optim
from weft.distributions import Normal, Poisson, kl_divergence
from weft.errors import WeftError
from weft.train import metrics

PACKAGE = str(Path(weft.__file__).parent)
MISTAKES: dict[str, Callable[[], Any]] = {
    "module": lambda: nn.Linear(3, 2)(weft.ones(4)),
    "modules": lambda: nn.Sequential(nn.Linear(3, 2))(weft.ones(4)),
    "vmap": lambda: weft.vmap(lambda x: x @ weft.ones(5))(weft.ones(2, 3)),
    "grad": lambda: weft.grad(lambda x: x @ weft.ones(5))(weft.ones(3)),
    "optimizer": lambda: optim.SGD([nn.Parameter(weft.ones(2))], lr=-1),
    "keyword": lambda: optim.Adam([nn.Parameter(weft.ones(2))], momentum=0.9),  # type: ignore[call-arg]
    "method": lambda: weft.ones(2, 3).max(5),
    "in place": lambda: weft.ones(2).scatter_(3, weft.tensor([0]), 1.0),
    "one tensor": lambda: weft.exp([1.0, 2.0]),  # type: ignore[arg-type]
    "one tensor and more": lambda: weft.exp(weft.ones(2), weft.ones(2)),  # type: ignore[call-arg]
    "one tensor without gradient": lambda: weft.isnan("a"),  # type: ignore[arg-type]
    "two tensors and more": lambda: weft.add(weft.ones(2), 1, 2),  # type: ignore[call-arg]
    "random": lambda: weft.random.normal((2, 3)),  # type: ignore[arg-type]
    "rows": lambda: data.from_arrays(weft.ones(2), weft.ones(3)),
    "view": lambda: weft.view(3),
    "dot": lambda: weft.dot(3),
    "divergence": lambda: kl_divergence(Normal(0.0, 1.0), Poisson(1.0)),
    "folder": lambda: nn.load_hf("no such folder"),
    "metric": lambda: metrics.F1(classes="a"),  # type: ignore[arg-type]
}


class Foreign:
    """What weft knows nothing of."""


@pytest.mark.parametrize(
    "call",
    [
        weft.sum, weft.exp, weft.softmax, weft.concat, weft.block_diag, weft.where, weft.isclose,
        nn.functional.celu, nn.functional.gelu, nn.functional.conv2d, nn.functional.mse_loss,
    ],
    ids=lambda call: call.__name__,
)  # fmt: skip
@pytest.mark.parametrize("given", [Foreign(), None], ids=["foreign", "None"])
def test_what_is_no_tensor_is_an_error_of_weft(call: Callable[..., Any], given: object) -> None:
    count = {"where": 3, "isclose": 2, "conv2d": 2, "mse_loss": 2}.get(call.__name__, 1)
    with pytest.raises(WeftError, match=f"tensors.*got {type(given).__name__}") as caught:
        call(*[given] * count)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [f for f in files if f.startswith(PACKAGE)] == []


@pytest.mark.parametrize("name", MISTAKES)
def test_no_line_of_weft_is_shown(name: str) -> None:
    with pytest.raises(WeftError) as caught:
        MISTAKES[name]()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [f for f in files if f.startswith(PACKAGE)] == []


def test_wrong_keyword_of_an_optimizer_names_the_class_and_what_it_takes() -> None:
    with pytest.raises(WeftError) as caught:
        MISTAKES["keyword"]()
    assert str(caught.value).startswith("Adam: unknown keyword 'momentum'")
    assert "it takes params, lr, betas" in str(caught.value)
