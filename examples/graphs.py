"""Plain Python as a graph: ``python examples/graphs.py`` shows how it is captured, printed, optimised and
rewritten, and how a graph is written by hand.
"""

from __future__ import annotations

import weft
from weft import Tensor


def settle(x: Tensor, w: Tensor) -> Tensor:
    """Go on until x hardly changes: how often, the values tell."""
    change = weft.ones_like(x)
    while weft.abs(change).max() > 1e-3:
        change = weft.tanh(x @ w) - x
        x = x + 0.5 * change
    return x


def softmax_by_hand(x: Tensor) -> Tensor:
    """The naive formula, which overflows for large x."""
    e = weft.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def main() -> None:
    weft.manual_seed(0)
    x, w = weft.randn(2, 3), 0.5 * weft.randn(3, 3)

    print("A while loop on a tensor, captured from its source:\n")
    graph = weft.make_graph(settle)(x, w)
    print(graph)
    print("\nIt gives what Python gives:", weft.all(weft.abs(graph(x, w) - settle(x, w)) < 1e-6).item())

    print("\nIts gradient is a graph too. Passes that changed it:\n")
    slope = weft.value_and_grad(lambda w, x: settle(x, w).sum())
    for name, before, after in weft.make_graph(slope)(w, x).optimize().history():
        print(f"  {name:12} {sum(1 for _ in before.walk()):3} nodes, then {sum(1 for _ in after.walk()):3}")

    print("\nA formula replaced wherever it stands:\n")
    naive = weft.make_graph(lambda x: softmax_by_hand(10.0 * x), name="attention")(x)
    print(naive.rewrite(softmax_by_hand, lambda x: weft.softmax(x, axis=-1)))

    print("\nA graph written by hand, that fits a line:\n")
    a, b = weft.tensor(0.0), weft.tensor(0.0)
    with weft.Graph("line") as line:
        points, values = weft.placeholder("points", ("n",)), weft.placeholder("values", ("n",))
        loss = ((a * points + b - values) ** 2).mean()
        slopes = weft.gradients(loss, [a, b])
        step = weft.group(*[weft.assign(p, p - 0.1 * g) for p, g in zip((a, b), slopes, strict=True)])
    session, data = weft.Session(line), weft.linspace(-1.0, 1.0, 20)
    for _ in range(200):
        session.run(step, {points: data, values: 2.0 * data + 1.0})
    print(f"a = {a.item():.3f}, b = {b.item():.3f}")


if __name__ == "__main__":
    main()
