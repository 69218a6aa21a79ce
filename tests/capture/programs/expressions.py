"""Expressions: ternaries, ``and``, ``or``, ``not``, comparisons, comprehensions, conversions, indices."""

import math

import weft
from tests.capture.programs.registry import program

V = [[0.5, 1.0, -0.75]]
W = [[2.0, 0.1, 0.3]]
N = [[-1.0, -2.0, -3.0]]
M = [[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]]


@program(V, W, N)
def ternary(x):
    return x * 2 if x.sum() > 1 else x / 2


@program(V, W, N)
def ternary_nested(x):
    return x * 2 if x.sum() > 2 else (x * 3 if x.sum() > 0 else x * 4)


@program(V, W, N)
def ternary_never_evaluates_both(x):
    s = x.sum()
    return weft.log(s) if s > 0 else s * s


@program(V, W, N)
def and_of_tensors(x):
    if x.sum() > 0 and x[0] > 1:
        return x * 2
    return x


@program(V, W, N)
def or_of_tensors(x):
    if x.sum() > 2 or x[1] > 0.5:
        return x * 2
    return x


@program(V, W, N)
def not_of_a_tensor(x):
    if not x.sum() > 0:
        return -x
    return x


@program(V, W, N)
def and_or_mixed_with_python(x):
    flag = True
    if flag and (x.sum() > 0 or not flag) and not (x[0] > 1 and flag):
        return x + 1
    return x - 1


@program(V, W, N)
def chained(x):
    if 0 < x.sum() < 2 < 3:
        return x * 5
    return x


@program(V, W, N)
def comparison_as_value(x):
    inside = (x > -0.8) & (x < 0.8)
    return x * inside + (~inside) * 2.0


@program(V, W, N)
def conversions(x):
    s = float(x.sum())
    return x * s


@program(V, W, N)
def truncation(x):
    n = int(x.sum() * 3)
    return x * n + (n % 2)


@program(V, W, N)
def item_used(x):
    m = x.max().item()
    return x / (abs(m) + 1)


@program(V, W, N)
def truth_value(x):
    flag = bool(x.sum() > 0)
    return x * 2 if flag else x * 3


@program(V, W, N)
def builtins_on_tensors(x):
    return max(x[0], x[1]) * min(x[1], x[2]) + abs(x[2]) + sum([x[0], x[1], x[2]])


@program(V, W, N)
def comprehension_of_tensors(x):
    parts = [x * k for k in range(1, 4)]
    return weft.stack(parts).sum(axis=0)


@program(V, W, N)
def comprehension_with_condition(x):
    parts = [x * k for k in range(6) if k % 2 == 1]
    return parts[0] + parts[1] * parts[2]


@program(M)
def comprehension_over_rows(m):
    return weft.stack([row * row.sum() for row in m])


@program(V, W, N)
def dict_comprehension(x):
    named = {f"k{i}": x * i for i in range(3)}
    return named["k1"] + named["k2"] * 2


@program(V, W, N)
def generator_expression(x):
    return sum(x * k for k in (1.0, 2.0, 3.0))


@program(V, W, N)
def any_and_all(x):
    if any([x[0] > 1, x[1] > 0.5]) and not all([x[0] > 0, x[1] > 0, x[2] > 0]):
        return x * 3
    return x


@program(V, W, N)
def walrus(x):
    if (s := x.sum()) > 1:
        return x * s
    return x - s


@program(V, W, N)
def starred(x):
    first, *rest = [x, x * 2, x * 3]
    a, b = rest
    return first + a * b


@program(V, W, N)
def f_string_of_a_shape(x):
    text = f"{x.shape[0]} numbers"
    return x * len(text)


@program(V, W, N)
def mathematics(x):
    return x * math.sqrt(2.0) + math.pi


@program(V, W, N)
def slices(x):
    return weft.concat([x[1:], x[:1]]) * x[::-1]


@program(V, W, N)
def dynamic_index(x):
    i = weft.argmax(x)
    return x[i] * x


@program(M)
def dynamic_row(m):
    i = weft.argmax(m.sum(axis=1))
    return m[i] * 2


@program(V, W, N)
def mask_assignment(x):
    y = x * 1
    y[x < 0] = 0.25
    return y * x


@program(V, W, N)
def masked_by_where(x):
    return weft.where(x > 0, weft.log(weft.where(x > 0, x, 1.0)), x * x)


@program(V, W, N)
def log_in_where_without_care(x):
    return weft.where(x > 0, weft.log(x), 0.0).sum()


@program(V, W, N)
def ternary_in_a_call(x):
    return weft.maximum(x, x[0] if x[0] > x[1] else x[1])


@program(V, W, N)
def lambda_with_branch(x):
    f = lambda v: v * 2 if v.sum() > 0 else v * 3  # noqa: E731
    return f(x) + f(-x)


@program(V, W, N)
def integer_division_and_modulo(x):
    n = 7
    return x * (n // 2) + x * (n % 3) - x**2


@program(V, W, N)
def power_of_index(x):
    total = x * 0
    for i in range(1, 4):
        total = total + x**i / i
    return total


@program(V, W, N)
def float_of_index(x):
    total = x * 0
    for i in range(4):
        total = total + x * (1 / (i + 1)) * (-1) ** i
    return total


@program(V, W, N)
def condition_on_index(x):
    for i in range(6):
        if i % 2 == 0:
            x = x + i
        else:
            x = x * 0.5
    return x


@program(V, W, N)
def index_and_tensor_condition(x):
    for i in range(5):
        if i > 1 and x.sum() < 3:
            x = x + 1
    return x


@program(M, [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
def row_slices_by_index(m):
    total = weft.zeros(2)
    for i in range(2):
        total = total + m[0, i : i + 2] * m[1, i]
    return total


@program([[3, 1, 2]], [[5, 5, 5]], differentiable=False)
def bitwise_on_integers(x):
    y = x & 1
    if (y == 1).all():
        y = x | 2
    return y ^ 1


@program(V, W, N, differentiable=False, abstract=False)
def tolist_and_back(x):
    values = x.tolist()
    return weft.tensor(values) * 2


@program([[0.0, 1.0, 2.0]], [[1.0, 0.0, 0.0]], abstract=False)
def shapes_of_nonzero(x):
    (where,) = weft.nonzero(x)
    return x[where] * 2
