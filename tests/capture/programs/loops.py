"""``while`` and ``for``, their variables, and loops in loops."""

import weft
from tests.capture.programs.registry import program

V = [[0.5, 1.0, -0.75]]
W = [[2.0, 0.1, 0.3]]
M = [[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [1.0, 1.1, 1.2]]]


@program(V, W, loops=1)
def doubling(x):
    while x.sum() < 10:
        x = x * 2 + 0.1
    return x


@program(V, W, loops=1)
def counted(x):
    n = weft.tensor(0)
    while n < 5:
        x = weft.sin(x) + 0.5
        n = n + 1
    return x * n


@program(V, W)
def never_entered(x):
    while x.sum() > 1000:
        x = x * 2
    return x + 1


@program([2.0], [9.0], [0.5], loops=1)
def newton_square_root(a):
    x = a * 0 + 1.0
    while weft.abs(x * x - a) > 1e-4:
        x = 0.5 * (x + a / x)
    return x


@program([6], [7], [27], differentiable=False, loops=1)
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return weft.as_tensor(steps)


@program([48, 36], [17, 5], differentiable=False, loops=1)
def greatest_common_divisor(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@program(V, W, loops=1)
def over_range(x):
    for _ in range(4):
        x = weft.tanh(x) * 1.5
    return x


@program(V, W, loops=1)
def index_used(x):
    y = weft.zeros(3)
    for i in range(5):
        y = y + x * i
    return y


@program(V, W, loops=1)
def range_with_step(x):
    total = x * 0
    for i in range(1, 10, 3):
        total = total + x / i
    return total


@program(V, W, loops=1)
def range_downwards(x):
    total = x * 0
    for i in range(5, 0, -1):
        total = total * 0.5 + x * i
    return total


@program(V, W)
def empty_range(x):
    for i in range(0):
        x = x / i
    return x * 2


@program(M, loops=1)
def over_rows(m):
    total = weft.zeros(3)
    for row in m:
        total = total * 0.5 + row * row
    return total


@program(M, loops=1)
def rnn(m):
    w = weft.tensor([[0.5, -0.2, 0.1], [0.3, 0.1, -0.4], [0.2, 0.2, 0.2]])
    h = weft.zeros(3)
    for t in range(m.shape[0]):
        h = weft.tanh(m[t] + h @ w)
    return h


@program(M, loops=1)
def rows_with_index(m):
    total = weft.zeros(3)
    for i, row in enumerate(m):
        total = total + row * (i + 1)
    return total


@program(M, loops=1)
def rows_zipped(m):
    total = weft.zeros(())
    for a, b in zip(m, m * 2 + 1):
        total = total + a @ b
    return total


@program(M, loops=2)
def nested_ranges(m):
    total = weft.zeros(())
    for i in range(4):
        for j in range(3):
            total = total + m[i, j] * (i - j)
    return total


@program(M, loops=1)
def outer_loop_of_vectors(m):
    best = m[0]
    for i in range(1, 4):
        if m[i].sum() > best.sum():
            best = m[i]
    return best


@program(V, W, loops=1)
def branch_in_loop(x):
    for i in range(6):
        if x.sum() > 2:
            x = x * 0.5
        else:
            x = x + 0.75
    return x


@program(V, W, loops=1)
def loop_in_branch(x):
    if x.sum() > 1:
        while x.sum() > 1:
            x = x * 0.5
    else:
        x = x * x
    return x


@program(V, W, loops=2)
def while_in_while(x):
    n = weft.tensor(0)
    while n < 3:
        k = weft.tensor(0)
        while k < n:
            x = x * 1.1
            k = k + 1
        x = x + 0.1
        n = n + 1
    return x


@program(V, W, loops=2)
def while_in_for(x):
    for _ in range(3):
        while x.max() > 1:
            x = x * 0.7
        x = x + 0.5
    return x


@program(V, W, loops=1)
def several_carries(x):
    a, b = x, x * 0.5
    for _ in range(4):
        a, b = b, a * 0.5 + b
    return a * b


@program(V, W, loops=1)
def number_carried(x):
    s = 0.0
    for i in range(3):
        s = s + x[i] * x[i]
    return s


@program(V, W, loops=1)
def python_number_counts(x):
    n = 0
    while x.sum() < 20:
        x = x * 2 + 1
        n += 1
    return x * n


@program(V, W, loops=1)
def invariant_used(x):
    w = weft.exp(x)
    y = x
    for _ in range(3):
        y = weft.tanh(y * w)
    return y


@program(V, W, loops=1)
def tuple_carried(x):
    state = (x, x * 2)
    for _ in range(3):
        state = (state[1] * 0.5, state[0] + 1)
    return state[0] - state[1]


@program(V, W, loops=1)
def dict_carried(x):
    state = {"p": x, "v": x * 0}
    for _ in range(5):
        force = -state["p"]
        v = state["v"] + 0.1 * force
        state = {"p": state["p"] + 0.1 * v, "v": v}
    return state["p"] + state["v"]


@program(V, W, loops=1)
def in_place_in_loop(x):
    y = x * 1
    for i in range(3):
        y[i] = y[i] * 2 + i
    return y * x


@program(V, W, loops=1)
def prefix_sums_by_index(x):
    y = weft.zeros(3)
    for i in range(1, 3):
        y[i] = y[i - 1] + x[i - 1]
    return y


@program(M, loops=2)
def matrix_product_by_hand(m):
    out = weft.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            out[i, j] = (m[i] * m[j]).sum()
    return out


@program([[3.0, 1.0, 2.0, 5.0, 4.0]], [[1.0, 2.0, 3.0, 4.0, 5.0]], loops=2)
def bubble_sort(x):
    y = x * 1
    for i in range(4):
        for j in range(4):
            if y[j] > y[j + 1]:
                a = y[j]
                y[j] = y[j + 1]
                y[j + 1] = a
    return y * weft.arange(5.0)


@program([3], [0], [6], differentiable=False, loops=1)
def range_of_a_tensor(n):
    total = weft.tensor(0)
    for i in range(n):
        total = total + i * i
    return total


@program(V + [2], W + [4], V + [0], loops=1)
def power_by_loop(x, n):
    y = x * 0 + 1
    for _ in range(n):
        y = y * x
    return y


@program(V, W, loops=1)
def last_index_after_loop(x):
    for i in range(4):
        x = x + i
    return x * i


@program(V, W, loops=1)
def loop_else(x):
    for _ in range(2):
        x = x * 0.5
    else:
        x = x + 1
    return x


@program(M, loops=1)
def reversed_rows(m):
    h = weft.zeros(3)
    for row in reversed(m):
        h = 0.5 * h + row
    return h


@program(V, W, loops=1)
def condition_with_and(x):
    n = weft.tensor(0)
    while x.sum() < 50 and n < 6:
        x = x * 1.5 + 1
        n = n + 1
    return x


@program(V, W, loops=1)
def while_true_comparison_chain(x):
    while -100 < x.sum() < 10:
        x = x * 2 + 0.5
    return x


@program(M)
def over_python_list(m):
    layers = [m * 2, m + 1, m * m]
    y = m
    for layer in layers:
        y = weft.tanh(y + layer)
    return y


@program(V, W)
def over_dict_items(x):
    parts = {"a": 1.0, "b": 2.0}
    y = x
    for name, factor in parts.items():
        y = y * factor if name == "b" else y + factor
    return y


@program(V, W, loops=1)
def squared_distance_scan(x):
    total = x.sum() * 0
    previous = x[0]
    for i in range(1, 3):
        step = x[i] - previous
        total = total + step * step
        previous = x[i]
    return total


@program([[1.0, 0.5, 0.25, 0.125]], [[2.0, -1.0, 0.5, 3.0]], loops=1)
def horner(c):
    value = c[0] * 0
    for k in range(4):
        value = value * 0.5 + c[3 - k]
    return value


@program(V, W, loops=1)
def mean_by_welford(x):
    mean = x[0] * 0
    spread = x[0] * 0
    for i in range(3):
        delta = x[i] - mean
        mean = mean + delta / (i + 1)
        spread = spread + delta * (x[i] - mean)
    return mean + spread
