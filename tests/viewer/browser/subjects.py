"""What the pages that a browser shows are of: programs, a language model, and graphs of many nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import weft
from bench.workloads import gpt
from tests.viewer.large import block_names, tangled_graph, training_graph, unrolled_graph, write_page
from tests.viewer.programs import root, training_step
from weft import nn, optim


def write_pages(folder: Path) -> dict[str, Path]:
    """Pages of a training step, of a loop, of the language model, and of many nodes."""
    compiled, args = training_step()
    loop = weft.compile(root)
    subjects = {
        "step": (compiled, args),
        "loop": (loop, (weft.tensor([4.0, 16.0]),)),
        "gpt": (language_model(), None),
        "many": (many_nodes(5000), None),
    } | odd_programs()
    pages = {
        name: weft.view(shown, folder / f"{name}.html", open=False, args=args)
        for name, (shown, args) in subjects.items()
    }
    large: dict[str, tuple[weft.Graph, dict[str, str] | None]] = {
        "blocks": (training_graph(200), block_names(200)),
        "blocks 26k": (training_graph(252), block_names(252)),
        "unrolled 26k": (unrolled_graph(5200), None),
        "tangled 26k": (tangled_graph(26_000), None),
        "blocks 100k": (training_graph(970), block_names(970)),
        "unrolled 100k": (unrolled_graph(20_000), None),
    }
    return pages | {
        name: write_page(graph, folder / f"{name.replace(' ', '')}.html", modules)
        for name, (graph, modules) in large.items()
    }


def odd_programs() -> dict[str, tuple[Any, Any]]:
    """Programs that a page might not be prepared for."""

    def talks(x: Any) -> Any:
        print("x is", x)  # noqa: T201 - an effect in the graph
        return x

    def halves(x: Any) -> Any:
        while (x * x).sum() > 1.0:
            for _ in range(3):
                x = x * 0.9
        return x.sum()

    model = nn.Linear(2, 3)
    loss = model(weft.ones((4, 2))).sum()
    return {
        "nothing": (weft.parse_graph("graph f(%x: f32[2]) { return %x, %x }"), [[1.0, 2.0]]),
        "no inputs": (weft.parse_graph("graph f() { return f32(1.0) }"), []),
        "an effect": (talks, (weft.ones(2),)),
        "several results": (lambda x: weft.topk(x, 2), (weft.tensor([3.0, 1.0, 2.0]),)),
        "strange numbers": (lambda x: weft.log(x), (weft.tensor([0.0, -1.0, 1.0]),)),
        "a gradient of loops": (weft.grad(halves), (weft.tensor([3.0, 4.0]),)),
        "a recurrent network": (nn.LSTM(2, 3), (weft.ones((4, 1, 2)),)),
        "open sizes": (weft.make_graph(halves)(weft.TensorType(("n",), weft.float32)), None),
        "a dynamic graph": (loss, None),
        "one tensor": (weft.ones(2), None),
        "two graphs": with_gradient(),
    }


def with_gradient() -> tuple[Any, Any]:
    """A function whose gradient has a graph of its own."""
    w = weft.ones(3, requires_grad=True)
    function = weft.compile(lambda x: weft.tanh(x * w).sum())
    args = (weft.ones(3),)
    function(*args).backward()
    return function, args


ODD = list(odd_programs())


def language_model() -> Any:
    arrays = gpt.arrays(np.random.default_rng(0))
    model = gpt.load_weft(gpt.model_of(nn), arrays)  # type: ignore[attr-defined]
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x).reshape(-1, gpt.VOCABULARY)
        loss = nn.functional.cross_entropy(logits, y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(weft.tensor(arrays["x"]), weft.tensor(arrays["y"]))
    return step


def many_nodes(count: int) -> weft.Graph:
    lines = [f"  %{i}: f32[4] = add({before(i, 1)}, {before(i, 7)})" for i in range(count)]
    return weft.parse_graph(
        "\n".join(["graph many(%x: f32[4]) {", *lines, f"  return %{count - 1}", "}"])
    ).replace(name="many")


def before(i: int, by: int) -> str:
    return "%x" if i < by else f"%{i - by}"
