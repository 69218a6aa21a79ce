"""Lists that grow where a tensor decides: appends under an `if`, after `break` and `continue`, decoding."""

# ruff: noqa: PERF401, RUF007 - the programs are written as users write them

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import check_agrees, compiled, row
from weft.errors import CaptureError

RUNS = [(row(4, 2, 3, 0.5),), (row(0.5, 2, 0.25, 3),), (row(5, 6, 7, 8),)]


def one_version(f: Callable[..., Any], *runs: Any, grad: bool = True) -> None:
    """Check values and gradients, and that one graph serves all inputs."""
    check_agrees(f, *runs, grad=grad)
    captured = weft.compile(f)
    for run in runs:
        captured(*map(weft.tensor, run))
    assert len(captured.versions) == 1


def under_if(x: Any) -> Any:
    ys = []
    for i in range(4):
        if x[i] > 1:
            ys.append(x[i] * 2)
    return weft.stack(ys), len(ys), ys[0], ys[-1]


def after_break(x: Any) -> Any:
    ys = []
    for v in x:
        if v < 0.3:
            break
        ys.append(weft.sin(v))
    return weft.stack(ys).sum(), len(ys)


def before_and_after_continue(x: Any) -> Any:
    ys, zs = [], []
    for i, v in enumerate(x):
        ys.append(v * i)
        if v > 7.5:
            continue
        zs.append(v + 1)
        ys.append(-v)
    return weft.stack(ys), weft.stack(zs), len(ys) + len(zs)


def both_ways_unequal(x: Any) -> Any:
    ys = []
    for v in x:
        if v > 2.5:
            ys.append(v)
            ys.append(v * 2)
        else:
            ys.append(v * 3)
    return weft.stack(ys)


def in_a_while(x: Any) -> Any:
    ys, n = [], 0
    while x.sum() > 1:
        x = x * 0.5
        n += 1
        if x.sum() > 2:
            ys.append(x)
    return weft.stack(ys), n, len(ys)


def after_items_before(x: Any) -> Any:
    ys = [x[0], x[1] * 2]
    for v in x:
        if v > 1:
            ys.append(v)
    ys.append(x[3])
    total = x[0] * 0
    for y in ys:
        total = total * 0.5 + y
    return weft.stack(ys), ys[0], ys[1], ys[-1], ys[2], len(ys), total, weft.stack(ys[1:])


def plus_equals_and_extend(x: Any) -> Any:
    ys = [x[0]]
    for v in x:
        if v > 1:
            ys += [v]
            ys.extend([v * 2, v * 3])
    return weft.stack(ys)


def in_a_branch_at_the_top(x: Any) -> Any:
    ys = [x]
    if x.sum() > 5:
        ys.append(x * 2)
    if x[0] > 1:
        ys.append(x * 3)
    else:
        ys.append(x * 4)
        ys.append(x * 5)
    return weft.stack(ys), len(ys), ys[-1], weft.concat(ys)


def nested_loops(x: Any) -> Any:
    ys = []
    for i in range(3):
        for j in range(2):
            if x[i] + j > 2.5:
                ys.append(x[i] * (j + 1))
        ys.append(x[i])
    return weft.stack(ys)


def nested_loops_with_break(x: Any) -> Any:
    ys = []
    for i in range(3):
        for j in range(3):
            if x[i] * (j + 1) > 5:
                break
            ys.append(x[i] + j)
    ys.append(x[0])
    return weft.stack(ys)


def last_item_is_read(x: Any) -> Any:
    ys = [x[0]]
    for i in range(4):
        if x[i] > 1:
            ys.append(weft.sin(ys[-1]) + x[i])
    return weft.stack(ys), ys[-1]


def last_item_in_a_while(x: Any) -> Any:
    ys = [x]
    while ys[-1].sum() > 1:
        ys.append(ys[-1] * 0.5)
    return weft.stack(ys), len(ys)


def length_in_a_while(x: Any) -> Any:
    ys = []  # type: ignore[var-annotated]
    while len(ys) < 6 and x.sum() > 1:
        x = x * 0.7
        if x[1] > 0.7:
            ys.append(x)
        else:
            ys.append(x * 2)
            ys.append(x * 3)
    return weft.stack(ys), len(ys)


def truth_of_a_list(x: Any) -> Any:
    ys = []  # type: ignore[var-annotated]
    for v in x:
        if ys:
            v = v + 10
        if v > 2.5:
            ys.append(v)
    return weft.stack(ys)


def numbers(x: Any) -> Any:
    ys = []
    for i in range(4):
        if x[i] > 1:
            ys.append(i)
    total = 0
    for y in ys:
        total += y
    return weft.tensor(ys) * 2, ys[0], total, len(ys)


def comprehension_with_condition(x: Any) -> Any:
    ys = [v * 2 for v in x if v > 1]
    return weft.stack(ys), len(ys), sum(ys)


def helper(out: Any, v: Any) -> None:
    if v > 1:
        out.append(v)


def in_a_function(x: Any) -> Any:
    ys: list[Any] = []
    for v in x:
        helper(ys, v)
    return weft.stack(ys)


def list_is_returned(x: Any) -> Any:
    ys = []
    for v in x:
        if v > 1:
            ys.append(v)
    return ys


def length_alone(x: Any) -> Any:
    ys, zs = [], []
    for v in x:
        if v > 1:
            ys.append(v)
    while x.sum() > 1:
        x = x * 0.5
        zs.append(x)
    return x * len(ys), len(zs)


def lists_in_loops(x: Any) -> Any:
    out = []
    for v in x:
        line = []
        for j in range(3):
            if v * j > 1:
                line.append(v * j)
        if len(line) > 1:
            out.append(sum(line))
    return weft.stack(out)


def loops_over_grown_lists(x: Any) -> Any:
    ys = []
    for v in x:
        if v > 1:
            ys.append(v)
    for v in x:
        if v < 1:
            ys.append(v)
    s = x[0] * 0
    for y in reversed(ys):
        s = s * 0.5 + y
    for i, y in enumerate(ys):
        s = s + i * y
    for a, b in zip(ys, ys[1:], strict=False):
        s = s + a * b
    return weft.concat([weft.stack(ys), x]), s, weft.stack([y * 2 for y in ys if y > 2.5])


def lists_in_a_dict(x: Any) -> Any:
    lists: dict[str, list[Any]] = {"a": [], "b": []}
    for v in x:
        if v > 1:
            lists["a"].append(v)
        else:
            lists["b"].append(v)
    return weft.stack(lists["a"]), len(lists["b"])


def rejection(x: Any) -> Any:
    kept, n = [], 0  # type: ignore[var-annotated]
    while len(kept) < 3:
        y = weft.sin(x.sum() * n)
        n += 1
        if y > 0.2:
            kept.append(y)
    return weft.stack(kept), n


PROGRAMS = [
    length_alone,
    lists_in_loops,
    loops_over_grown_lists,
    lists_in_a_dict,
    rejection,
    under_if,
    after_break,
    before_and_after_continue,
    both_ways_unequal,
    in_a_while,
    after_items_before,
    plus_equals_and_extend,
    in_a_branch_at_the_top,
    nested_loops,
    nested_loops_with_break,
    last_item_is_read,
    last_item_in_a_while,
    length_in_a_while,
    truth_of_a_list,
    numbers,
    comprehension_with_condition,
    in_a_function,
    list_is_returned,
]


@pytest.mark.rotating(5)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_agrees_with_eager(f: Callable[..., Any]) -> None:
    one_version(f, *RUNS)


# Decoding

EOS, TABLE = 3, np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
STARTS = [(np.array(i),) for i in range(6)]


def greedy(start: Any) -> Any:
    table = weft.tensor(TABLE)
    tokens = []
    token = start
    for _ in range(20):
        token = weft.argmax(table[token])
        tokens.append(token)
        if token == EOS:
            break
    return weft.stack(tokens), len(tokens)


def greedy_from_the_list(start: Any) -> Any:
    table = weft.tensor(TABLE)
    tokens = [start]
    while len(tokens) < 12:
        token = weft.argmax(table[tokens[-1]] + 0.1 * len(tokens))
        if token == EOS:
            break
        tokens.append(token)
    return weft.stack(tokens)


def greedy_with_numbers(start: Any) -> Any:
    table = weft.tensor(TABLE)
    tokens = [int(start)]
    for _ in range(10):
        token = int(table[tokens[-1]].argmax())
        if token == EOS:
            break
        tokens.append(token)
    return weft.tensor(tokens)


def beam(start: Any) -> Any:
    table = weft.log_softmax(weft.tensor(TABLE), axis=-1)
    scores, last = weft.topk(table[start], 2)
    tokens, parents = [last], []
    for _ in range(8):
        every = (scores[:, None] + table[last]).reshape(-1)
        scores, index = weft.topk(every, 2)
        parent, last = index // 6, index % 6
        parents.append(parent)
        tokens.append(last)
        if (last == EOS).any():
            break
    best = scores.argmax()
    path = []
    for i in range(len(parents) - 1, -1, -1):
        path.append(tokens[i + 1][best])
        best = parents[i][best]
    path.append(tokens[0][best])
    return weft.stack(path), scores


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "f", [greedy, greedy_from_the_list, greedy_with_numbers, beam], ids=lambda f: f.__name__
)
def test_decoding(f: Callable[..., Any]) -> None:
    one_version(f, *STARTS, grad=False)


# Errors


def test_items_that_are_not_alike() -> None:
    def f(x: Any) -> Any:
        ys = []
        for i in range(3):
            if x[i] > 1:
                ys.append((x, i))
        return weft.stack(ys)

    with pytest.raises(CaptureError, match="must be tensors of one shape and dtype"):
        compiled(f)(weft.tensor(RUNS[0][0]))


def test_a_while_that_appends_to_a_list_from_around_a_while() -> None:
    def f(x: Any) -> Any:
        ys = []
        while x.sum() > 1:
            y = x
            while y.sum() > 0.5:
                y = y * 0.5
                ys.append(y)
            x = x * 0.5
        return weft.stack(ys)

    with pytest.raises(CaptureError, match="must append a fixed number of items"):
        compiled(f)(weft.tensor(RUNS[0][0]))


def test_reading_the_middle_of_a_list_that_grows() -> None:
    def f(x: Any) -> Any:
        ys = [x]
        while ys[0].sum() + x.sum() > 1:
            x = x * 0.5
            ys.append(x)
        return weft.stack(ys)

    with pytest.raises(CaptureError, match="must read the last item and the length alone"):
        compiled(f)(weft.tensor(RUNS[0][0]))


def test_insert_under_a_tensor_if() -> None:
    def f(x: Any) -> Any:
        ys = [x]
        if x.sum() > 1:
            ys.insert(0, x * 2)
        return weft.stack(ys)

    with pytest.raises(CaptureError, match="a list must be the same on both ways, got a list of 2") as caught:
        weft.make_graph(f)(weft.tensor(RUNS[0][0]))
    assert "append on both ways" in str(caught.value)
    check_agrees(f, (row(2.0, 3.0),), (row(0.25, 0.5),))


@pytest.mark.parametrize("c", [1.0, -1.0])
def test_a_tensor_that_an_if_picks_and_a_loop_appends_is_the_item(c: float) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        kept = {"q": weft.zeros(2)}
        p, other = weft.tensor([1.0, 2.0]), weft.tensor([7.0, 8.0])

        def step(c: Any) -> Any:
            v = p
            if c > 0:
                v = other
            items = []
            for _ in range(2):
                v = v  # which makes it a variable of the loop
                items.append(v)
            kept["q"] = items[-1]
            return c * 1

        wrap(step)(weft.tensor(c))
        kept["q"].add_(100.0)
        return [p.tolist(), other.tolist()]

    assert run(lambda f: weft.compile(f, backend="interpret")) == run(lambda f: f)
