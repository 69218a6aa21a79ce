"""``break``, ``continue`` and early ``return``, alone and in each other."""

import weft
from tests.capture.programs.registry import program

V = [[0.5, 1.0, -0.75]]
W = [[2.0, 0.1, 0.3]]
N = [[-1.0, -2.0, -3.0]]


@program(V, W)
def break_on_tensor(x):
    for i in range(10):
        if x.sum() > 8:
            break
        x = x * 2 + 0.5
    return x


@program(V, W)
def break_in_while(x):
    n = weft.tensor(0)
    while n < 100:
        x = x + 0.5
        if x.sum() > 5:
            break
        n = n + 1
    return x * n


@program(V, W)
def while_true(x):
    while True:
        x = x * 1.5 + 0.25
        if x.sum() > 10:
            break
    return x


@program(V, W, N)
def continue_on_tensor(x):
    total = x.sum() * 0
    for i in range(3):
        if x[i] < 0:
            continue
        total = total + x[i] * x[i]
    return total


@program(V, W, N)
def break_and_continue(x):
    total = x.sum() * 0
    for i in range(3):
        if x[i] < -2.5:
            break
        if x[i] < 0:
            continue
        total = total + weft.sqrt(x[i])
    return total


@program(V, W, N)
def return_early(x):
    if x.sum() > 2:
        return x * 2
    return x * 3


@program(V, W, N)
def return_in_nested_ifs(x):
    if x[0] > 0:
        if x[1] > 0.5:
            return x * 2
        if x[2] > 0:
            return x * x
    elif x[1] < -1:
        return weft.exp(x)
    return x - 1


@program(V, W, N)
def return_from_loop(x):
    for i in range(5):
        x = x * 1.5
        if weft.abs(x).max() > 2:
            return x + i
    return x


@program(V, W, N)
def return_from_while(x):
    n = 0
    while weft.abs(x).max() < 50:
        x = x * 2
        n = n + 1
        if x[0] > 3:
            return x * n
    return -x


@program(V, W, N)
def return_from_inner_loop(x):
    for i in range(3):
        for j in range(3):
            x = x + 0.1 * (i + j)
            if x.sum() > 2.5:
                return x * 10
    return x


@program(V, W, N)
def break_inner_only(x):
    for _ in range(3):
        for _ in range(4):
            if x.sum() > 3:
                break
            x = x + 0.3
        x = x * 0.9
    return x


@program(V, W, N)
def break_with_else(x):
    found = weft.zeros(())
    for i in range(3):
        if x[i] > 0.75:
            found = x[i]
            break
    else:
        found = found - 1
    return found * x


@program(V, W, N)
def continue_in_while(x):
    n = weft.tensor(0)
    total = x.sum() * 0
    while n < 6:
        n = n + 1
        if n % 2 == 0:
            continue
        total = total + x[0] * n
    return total


@program(V, W, N)
def return_tuple_early(x):
    if x.sum() > 1:
        return x, x * 2
    return x * 3, x * 4


@program(V, W, N)
def return_in_else(x):
    if x.sum() > 1:
        y = x + 1
    else:
        return x * x
    return y * 2


@program(V, W, N)
def return_numbers(x):
    if x.sum() > 0:
        return x.sum() * 1.0
    return 0.0 * x.sum() - 1.0


@program(V, W, N)
def guard_clauses(x):
    if x.max() > 1.5:
        return x / x.max()
    if x.min() < -2:
        return x - x.min()
    if weft.abs(x).sum() < 1e-9:
        return x
    return x * 0.1


@program([[5.0, 3.0, 8.0, 1.0]], [[1.0, 2.0, 3.0, 4.0]], differentiable=False)
def find_first(x):
    where = -1
    for i in range(4):
        if x[i] > 2.5:
            where = i
            break
    return weft.as_tensor(where)


@program([[1.0, 3.0, 5.0, 7.0, 9.0], 6.0], [[1.0, 3.0, 5.0, 7.0, 9.0], 0.0], differentiable=False)
def binary_search(x, t):
    low, high = 0, 5
    while low < high:
        middle = (low + high) // 2
        if x[middle] < t:
            low = middle + 1
        else:
            high = middle
        if high - low <= 0:
            break
    return weft.as_tensor(low)


@program([[0.1, 0.9, 0.4]], [[0.5, 0.2, 0.3]])
def beam_like(scores):
    best = scores
    kept = weft.zeros(3)
    for step in range(6):
        top = weft.max(best)
        kept = kept + best * 0.5
        if top > 1.2:
            break
        order = weft.argsort(best, descending=True)
        best = best[order] * 0.8 + scores * 0.7
        if best.sum() > 4:
            continue
        best = best + 0.05
    return kept * best


@program(V, W, N)
def two_loops_in_turn(x):
    while x.sum() < 4:
        x = x + 1
        if x[0] > 3:
            break
    for i in range(4):
        if x[i % 3] < 0:
            continue
        x = x * 0.9
    return x


@program(V, W, N)
def loop_returns_or_breaks(x):
    for i in range(4):
        if x.sum() > 6:
            return x * 100
        if x.sum() < -3:
            break
        x = x * 1.7
    return x + 1


@program(V, W, N)
def nested_function_returns(x):
    def pick(v):
        if v.sum() > 0:
            return v * 2
        return v * 3

    return pick(x) + pick(-x)
