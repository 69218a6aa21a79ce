"""Lists that grow in loops, tuples, dicts, named tuples and other containers of tensors."""

from typing import NamedTuple

import weft
from tests.capture.programs.registry import program

V = [[0.5, 1.0, -0.75]]
W = [[2.0, 0.1, 0.3]]
N = [[-1.0, -2.0, -3.0]]
M = [[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [1.0, 1.1, 1.2]]]


@program(V, W, N, loops=1)
def append_in_loop(x):
    outs = []
    for _ in range(4):
        x = weft.tanh(x) + 0.1
        outs.append(x)
    return weft.stack(outs)


@program(M, loops=1)
def hidden_states(m):
    h = weft.zeros(3)
    states = []
    for row in m:
        h = weft.tanh(row + 0.5 * h)
        states.append(h)
    return weft.stack(states, axis=1)


@program(V, W, N, loops=1)
def two_lists(x):
    a, b = [], []
    for i in range(3):
        a.append(x * i)
        b.append(x[i])
    return weft.stack(a).sum(axis=0) * weft.stack(b)


@program(V, W, N)
def list_read_afterwards(x):
    outs = []
    for i in range(4):
        x = x * 0.5 + i
        outs.append(x)
    return outs[0] * outs[-1] + len(outs)


@program(V, W, N)
def list_iterated_afterwards(x):
    outs = []
    for i in range(3):
        x = x * 1.5
        outs.append(x)
    total = x * 0
    for o in outs:
        total = total + o
    return total


@program(V, W, N)
def list_started_with_one(x):
    outs = [x]
    for _ in range(3):
        outs.append(outs[-1] * 0.5 + 1)
    return weft.stack(outs)


@program(V, W, N)
def concatenated(x):
    outs = []
    for i in range(3):
        outs.append(x[i : i + 1] * 2)
    return weft.concat(outs)


class Pair(NamedTuple):
    first: weft.Tensor
    second: weft.Tensor


@program(V, W, N, loops=1)
def named_tuple_carried(x):
    pair = Pair(x, x * 2)
    for _ in range(3):
        pair = Pair(pair.second * 0.5, pair.first + 1)
    return pair.first + pair.second * 2


@program(V, W, N)
def named_tuple_branch(x):
    if x.sum() > 0:
        pair = Pair(x, x * 2)
    else:
        pair = Pair(x * 3, x)
    return pair.first * pair.second


@program(V, W, N)
def nested_containers(x):
    state = {"layers": [x, x * 2], "step": (x[0], 1.0)}
    if x.sum() > 0:
        state = {"layers": [state["layers"][1], x], "step": (x[1], 1.0)}
    return state["layers"][0] * state["step"][0] + state["layers"][1] * state["step"][1]


@program(V, W, N)
def returns_dict(x):
    if x.sum() > 0:
        out = {"y": x * 2, "z": x.sum()}
    else:
        out = {"y": x * 3, "z": x.sum() * 2}
    return out


@program(V, W, N, loops=1)
def list_of_tensors_carried(x):
    state = [x, x * 0.5]
    for _ in range(4):
        state = [state[1], state[0] + state[1]]
    return state[0] * state[1]


@program(V, W, N)
def dict_updated_in_python_loop(x):
    named = {}
    for name in ("a", "b", "c"):
        named[name] = x * len(named) + 1
    return named["a"] * named["b"] + named["c"]


@program(V, W, N)
def set_and_membership(x):
    wanted = {"tanh", "exp"}
    if "tanh" in wanted:
        x = weft.tanh(x)
    if "sin" in wanted:
        x = weft.sin(x)
    return x


@program(V, W, N)
def list_methods(x):
    items = [x, x * 2]
    items.insert(0, x * 3)
    items.extend([x * 4])
    last = items.pop()
    return items[0] + items[1] * last


@program(V, W, N)
def swap_items(x):
    items = [x, x * 2, x * 3]
    if x.sum() > 0:
        items[0], items[2] = items[2], items[0]
    return items[0] - items[2] * 0.5


@program(M, loops=1)
def running_maximum(m):
    best = m[0, 0]
    history = []
    for i in range(4):
        if m[i, 1] > best:
            best = m[i, 1]
        history.append(best)
    return weft.stack(history)


@program(V, W, N)
def zipped_lists(x):
    weights = [0.5, 1.5, 2.5]
    tensors = [x, x * x, weft.exp(x)]
    return sum(w * t for w, t in zip(weights, tensors))
