"""``if``, ``elif``, ``else`` and what they do to variables."""

import weft
from tests.capture.programs.registry import program

UP, DOWN = [[1.0, 2.0, 3.0]], [[-1.0, -2.0, 0.5]]
MIXED = [[0.5, -0.25, 0.0]]


@program(UP, DOWN)
def two_ways(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = -x
    return y


@program(UP, DOWN)
def without_else(x):
    y = x
    if x.sum() > 0:
        y = y * y
    return y


@program(UP, DOWN, MIXED)
def three_ways(x):
    s = x.sum()
    if s > 1:
        return weft.exp(x)
    elif s > 0:
        return weft.sin(x)
    else:
        return x * x


@program(UP, DOWN, MIXED)
def nested(x):
    if x.sum() > 0:
        if x[0] > 0.75:
            y = x * 3
        else:
            y = x + 3
    else:
        if x[1] < -1:
            y = x * x
        else:
            y = weft.tanh(x)
    return y


@program(UP, DOWN)
def several_variables(x):
    a, b, c = x, x * 2, weft.zeros(3)
    if (x > 0).all():
        a, b = b, a
        c = c + 1
    else:
        c = a - b
    return a * 2 + b * c


@program(UP, DOWN)
def python_and_tensor_conditions(x):
    scale = 2
    if scale == 2:
        y = x * scale
    else:
        y = x / 0
    if y.max() > 3:
        y = y - 1
    return y


@program(UP, DOWN)
def local_temporary(x):
    if x.mean() > 0:
        t = x + 1
        y = t * t
    else:
        u = x - 1
        y = u * u * u
    return y


@program(UP, DOWN)
def numbers_become_tensors(x):
    if x.sum() > 0:
        factor = 2.0
    else:
        factor = 0.5
    return x * factor


@program(UP, DOWN)
def integer_and_float(x):
    k = 1
    if x.sum() > 0:
        k = 3
    return x * k


@program(UP, DOWN)
def none_replaced(x):
    best = None
    if x.sum() > 0:
        best = x * 2
    else:
        best = x * 3
    return best


@program(UP, DOWN)
def pass_branch(x):
    y = x * x
    if x.sum() > 0:
        pass
    else:
        y = y + x
    return y


@program(UP, DOWN)
def augmented(x):
    y = x * 1
    if x.sum() > 0:
        y += 2
        y *= x
    else:
        y -= x
        y /= 4
    return y


@program(UP, DOWN)
def tuples_and_dicts(x):
    state = {"a": x, "b": x * x}
    if x[0] > 0:
        state = {"a": state["b"], "b": state["a"]}
    first, second = state["a"], state["b"]
    return first - 2 * second


@program(UP, DOWN)
def item_assignment(x):
    y = x * 1
    if x.sum() > 0:
        y[0] = 10.0
    else:
        y[1:] = y[:2] * 2
    return y * x


@program(UP, DOWN)
def condition_reused(x):
    positive = x.sum() > 0
    if positive:
        y = x * 2
    else:
        y = x * 3
    if not positive:
        y = y + 1
    return y


@program([[1.0, 4.0]], [[-1.0, 4.0]])
def log_guarded(x):
    if (x > 0).all():
        y = weft.log(x).sum()
    else:
        y = x.sum() * 0.5
    return y


@program([[2.0]], [[0.0]])
def division_guarded(x):
    if x.sum() != 0:
        return (1 / x).sum()
    return x.sum()


@program(UP, DOWN)
def assertion(x):
    y = x * 2
    assert y.shape == (3,)
    assert (y * 0 == 0).all(), "finite"
    return y


@program(UP, DOWN)
def printing(x):
    y = x.sum()
    if y > 0:
        print("positive", y)
    else:
        print("negative", y)
    return y * x


@program(UP, DOWN)
def where_side_by_side(x):
    a = weft.where(x > 0, weft.sqrt(weft.abs(x)), x)
    if a.sum() > 1:
        a = a * weft.where(x > 1, x, 1.0)
    return a


@program([2.0, 3.0], [3.0, 2.0])
def scalars(a, b):
    if a > b:
        a, b = b, a
    return b - a + a * b


@program([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [0.0, 0.0]])
def two_tensors(x, y):
    if weft.sum(x * y) > weft.sum(y):
        z = x @ y
    else:
        z = x.sum()
    return z * x


@program([[[1.0, 2.0], [3.0, 4.0]]], [[[1.0, 2.0], [2.0, 4.0]]])
def matrices(x):
    det = x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]
    if weft.abs(det) > 1e-6:
        inverse = weft.stack([weft.stack([x[1, 1], -x[0, 1]]), weft.stack([-x[1, 0], x[0, 0]])]) / det
    else:
        inverse = weft.zeros((2, 2))
    return inverse @ x


@program([[3, 1, 2]], [[1, 2, 3]], differentiable=False)
def whole_numbers(x):
    if x[0] > x[1]:
        y = weft.flip(x)
    else:
        y = x + 1
    return y * 2


@program(UP, DOWN)
def different_dtypes_agree(x):
    if x.sum() > 0:
        mask = x > 1.5
    else:
        mask = x < 0
    return weft.where(mask, x, x * 0.5)


@program(UP, DOWN, MIXED)
def match_on_python(x):
    kind = "square"
    match kind:
        case "square":
            y = x * x
        case _:
            y = x
    if y.sum() > 1:
        y = y / y.sum()
    return y


@program(UP, DOWN)
def with_blocks(x):
    with weft.no_grad():
        limit = x.max()
    if limit > 1:
        y = x / limit
    else:
        y = x + limit
    return y


@program(UP, DOWN)
def try_blocks(x):
    try:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
    finally:
        z = x + 1
    return y * z
