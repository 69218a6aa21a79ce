"""Calls: helpers, methods, closures, lambdas, decorators, defaults, recursion, functions as arguments."""

import functools

import weft
from tests.capture.programs.registry import program

V = [[0.5, 1.0, -0.75]]
W = [[2.0, 0.1, 0.3]]
N = [[-1.0, -2.0, -3.0]]
SCALE = 1.5


def clip_to(v, limit=1.0):
    if weft.abs(v).max() > limit:
        return v / weft.abs(v).max() * limit
    return v


def until_small(v, *, bound):
    while weft.abs(v).sum() > bound:
        v = v * 0.5
    return v


@program(V, W, N)
def helper(x):
    return clip_to(x) + clip_to(x * 3, limit=2.0)


@program(V, W, N)
def helper_of_helper(x):
    def twice(v):
        return clip_to(clip_to(v * 2) * 2)

    return twice(x) * x


@program(V, W, N)
def keyword_only(x):
    return until_small(x, bound=1.0) + until_small(x * 2, bound=0.5)


@program(V, W, N)
def global_number(x):
    return x * SCALE if x.sum() > 0 else x / SCALE


@program(V, W, N)
def closure(x):
    factor = x.sum()

    def scaled(v):
        if factor > 0:
            return v * factor
        return v - factor

    return scaled(x) + scaled(x * 2)


@program(V, W, N)
def closure_assigned(x):
    total = x * 0

    def add(v):
        nonlocal total
        if v.sum() > 0:
            total = total + v
        else:
            total = total - v

    add(x)
    add(x * -2)
    return total


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return wrapper


@doubled
def decorated_helper(v):
    if v.sum() > 0:
        return v
    return v * v


@program(V, W, N)
def decorated(x):
    return decorated_helper(x) + 1


def power(v, n):
    if n == 0:
        return v * 0 + 1
    return v * power(v, n - 1)


@program(V, W, N)
def recursion_of_fixed_depth(x):
    return power(x, 5)


def sierpinski(v, depth):
    if depth == 0:
        return v
    if v.sum() > 0:
        return sierpinski(v * 0.5, depth - 1)
    return sierpinski(v + 1, depth - 1)


@program(V, W, N)
def recursion_with_branches(x):
    return sierpinski(x, 3)


class Accumulator:
    def __init__(self, start):
        self.total = start

    def add(self, v):
        if v.sum() > 0:
            self.total = self.total + v
        else:
            self.total = self.total - v

    def __call__(self, v):
        self.add(v)
        return self.total


@program(V, W, N)
def object_made_inside(x):
    acc = Accumulator(x * 0)
    acc.add(x)
    acc.add(-2 * x)
    return acc(x * 0.5)


class Layer:
    scale = 2.0

    @staticmethod
    def activation(v):
        return v if v.sum() > 0 else weft.tanh(v)

    @classmethod
    def scaled(cls, v):
        return v * cls.scale

    @property
    def bias(self):
        return 0.25

    def forward(self, v):
        return self.activation(self.scaled(v) + self.bias)


@program(V, W, N)
def methods(x):
    return Layer().forward(x) + Layer().forward(-x)


@program(V, W, N)
def partial_application(x):
    f = functools.partial(clip_to, limit=0.5)
    return f(x) * 2


@program(V, W, N)
def function_as_argument(x):
    def apply(f, v, times):
        for _ in range(times):
            v = f(v)
        return v

    return apply(lambda v: v * 0.5 if v.sum() > 1 else v + 0.5, x, 4)


@program(V, W, N)
def variable_arguments(x):
    def total(*parts, weight=1.0, **named):
        out = parts[0] * 0
        for part in parts:
            out = out + part * weight
        for part in named.values():
            out = out - part
        return out

    return total(x, x * 2, weight=0.5, extra=x * x)


@program(V, W, N)
def argument_unpacking(x):
    pair = (x, 2.0)
    options = {"limit": 0.75}
    return clip_to(*pair[:1], **options) * pair[1]


@program(V, W, N)
def mapping(x):
    return sum(map(lambda v: v * v if v > 0 else v, [x[0], x[1], x[2]]))


@program(V, W, N)
def returns_function(x):
    def make(limit):
        def f(v):
            return v if v.sum() > limit else v * limit

        return f

    return make(1.0)(x) + make(-5.0)(x)


@program(V, W, N)
def gradient_inside(x):
    return weft.grad(lambda v: (v * v * v).sum() if v.sum() > 0 else (v * v).sum())(x)


@program(V, W, N)
def value_and_gradient_inside(x):
    value, slope = weft.value_and_grad(lambda v: (weft.sin(v) * v).sum())(x)
    return value * slope


@program(V, W, N)
def directional_derivative_inside(x):
    _, tangent = weft.jvp(lambda v: weft.tanh(v) * v, (x,), (x * 2,))
    return tangent


@program(V, W, N)
def vmap_inside(x):
    return weft.vmap(lambda v: v * v + weft.sin(v))(x)


@program(V, W, N)
def vmap_of_branch(x):
    return weft.vmap(lambda v: weft.cond(v > 0, lambda u: u * 2, lambda u: u * u, v))(x)


@program(V, W, N)
def explicit_control_flow(x):
    y = weft.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x)
    y = weft.fori_loop(0, 3, lambda i, v: weft.tanh(v) + 0.1, y)
    return weft.while_loop(lambda v: v.sum() < 3, lambda v: v + 0.5, y)


@program(V, W, N)
def scan_explicit(x):
    def step(carry, v):
        carry = carry * 0.5 + v
        return carry, carry * carry

    last, all_of_them = weft.scan(step, weft.zeros(()), x)
    return last + all_of_them


@program(V, W, N)
def switch_explicit(x):
    i = (x > 0).sum()
    return weft.switch(i, [lambda v: v, lambda v: v * 2, lambda v: v * v, lambda v: weft.exp(v)], x)


@program(V, W, N)
def checkpointed(x):
    return weft.checkpoint(lambda v: weft.tanh(v * v) * v, x)


@program(V, W, N)
def composite_calls(x):
    return weft.softmax(weft.gelu(x) + weft.silu(x), axis=-1) * weft.layer_norm(x, (3,))


@program(V, W, N)
def custom_function(x):
    class Cube(weft.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v * v * v

        @staticmethod
        def backward(ctx, g):
            (v,) = ctx.saved_tensors
            return g * 3 * v * v

    return Cube.apply(x) * 2
