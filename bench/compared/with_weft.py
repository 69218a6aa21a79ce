"""The cases in weft: ``python bench/compared/with_weft.py [case ...]``; the tests run them too."""

import sys
import time

import numpy as np
from runner import case, run_all

import weft


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x * 3


@case
def trace_takes_the_other_branch():
    f = weft.jit.trace(branch, weft.ones(2))
    return f(-weft.ones(2)).tolist(), "right: [-3.0, -3.0]"


@case
def branch_on_a_tensor():
    f = weft.compile(branch)
    return f(weft.ones(2)).tolist(), f(-weft.ones(2)).tolist()


@case
def newton_until_convergence():
    def f(a):
        x = weft.ones_like(a)
        while (x * x - a).abs() > 1e-5:
            x = 0.5 * (x + a / x)
        return x

    return weft.compile(f)(weft.tensor(2.0)).item()


@case
def gradient_of_a_while_loop():
    def f(a):
        x = weft.ones_like(a)
        while (x * x - a).abs() > 1e-5:
            x = 0.5 * (x + a / x)
        return x

    a = weft.tensor(2.0, requires_grad=True)
    weft.compile(f)(a).backward()
    return a.grad.item(), "right: 0.3536"


@case
def early_returns():
    def f(x):
        if x[0] > 0:
            if x[1] > 0:
                return x * 2
            return x * 3
        return x * 4

    g = weft.compile(f)
    return [g(weft.tensor(v)).tolist() for v in ([1.0, 1.0], [1.0, -1.0], [-1.0, 1.0])]


FACTOR = 2.0


@case
def global_changed():
    global FACTOR
    FACTOR = 2.0
    f = weft.compile(lambda x: x * FACTOR)
    first = f(weft.ones(1)).item()
    FACTOR = 5.0
    return first, f(weft.ones(1)).item(), "right: 2.0, 5.0"


@case
def array_changed():
    table = np.ones(2, np.float32)
    f = weft.compile(lambda x: x * table)
    first = f(weft.ones(2)).tolist()
    table[:] = 7
    return first, f(weft.ones(2)).tolist(), "right: [1, 1], [7, 7]"


@case
def attribute_changed():
    class Model:
        training = True

        def __call__(self, x):
            return x * 2 if self.training else x

    m = Model()
    f = weft.compile(m)
    first = f(weft.ones(1)).item()
    m.training = False
    return first, f(weft.ones(1)).item(), "right: 2.0, 1.0"


@case
def tensor_kept_outside():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x

    g = weft.compile(f)
    g(weft.ones(1))
    g(weft.ones(1))
    return len(kept), [k.item() for k in kept], "right: 2 items, or an error that names the line"


@case
def print_inside():
    def f(x):
        print("value", x)
        return x * 2

    g = weft.compile(f)
    g(weft.ones(1))
    g(weft.ones(1) * 3)
    return "right: two lines with values"


def loop_of(n):
    def f(x):
        for _ in range(n):
            x = weft.sin(x) * 1.01 + 0.1
        return x.sum()

    return f


@case
def compile_time_of_loops():
    times = []
    for n in (10, 100, 1000):
        x = weft.ones(64, requires_grad=True)
        f = weft.compile(weft.grad(loop_of(n)))
        start = time.perf_counter()
        weft.make_graph(weft.grad(loop_of(n)))(x)
        times.append(round(time.perf_counter() - start, 3))
        f(x)
    return f"10 iterations {times[0]} s, 100 iterations {times[1]} s, 1000 iterations {times[2]} s"


@case
def gradient_of_where():
    x = weft.tensor([0.0, 1.0], requires_grad=True)
    weft.where(x > 0, weft.log(x) * x, 0.0).sum().backward()
    return x.grad.tolist(), "right: [0, 1]"


@case
def vmap_of_a_branch():
    def f(x):
        return weft.cond(x > 0, lambda v: weft.log(v), lambda v: v * 0, x)

    return weft.vmap(weft.grad(f))(weft.tensor([0.0, 2.0])).tolist(), "right: [0, 0.5]"


@case
def value_as_a_number():
    f = weft.compile(lambda x: x * int(x.sum()))
    return f(weft.ones(3)).tolist(), f(weft.ones(3) * 2).tolist(), "right: [3, 3, 3], [12, 12, 12]"


@case
def mask_as_an_index():
    f = weft.compile(lambda x: x[x > 0] * 2)
    return f(weft.tensor([1.0, -1.0, 3.0])).tolist(), f(weft.tensor([1.0, -1.0, -3.0])).tolist()


@case
def twenty_settings_of_one_function():
    class Model:
        mode = ""

        def __call__(self, x):
            return x * len(self.mode)

    m = Model()
    f = weft.compile(m)
    right = 0
    for k in range(20):
        m.mode = "a" * k
        right += f(weft.ones(3)).tolist() == [float(k)] * 3
    return f"{right} of 20 right"


@case
def assertion_on_a_tensor():
    def f(x):
        assert (x > 0).all(), "must be positive"
        return x * 2

    g = weft.compile(f)
    g(weft.ones(2))
    return g(-weft.ones(2)).tolist(), "right: AssertionError"


@case
def item_assignment():
    def f(x):
        y = weft.zeros(3)
        for i in range(3):
            y[i] = x[i] * i
        return y

    return weft.compile(f)(weft.ones(3)).tolist()


@case
def index_out_of_bounds():
    return weft.compile(lambda x, i: x[i])(weft.ones(3), weft.tensor([7])).tolist(), "right: an error"


@case
def whole_training_step_as_one_graph():
    w = weft.ones(3, requires_grad=True)

    @weft.compile
    def step(x):
        w.grad = None
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with weft.no_grad():
            w.data = w - 0.1 * w.grad
        return loss

    return step(weft.ones(3)).item(), round(step(weft.ones(3)).item(), 4), "right: 3.0, 1.92"


@case
def double_backward():
    f = weft.compile(lambda x: (x * x * x).sum())
    x = weft.tensor([2.0], requires_grad=True)
    (g,) = weft.autograd.grad(f(x), x, create_graph=True)
    (h,) = weft.autograd.grad(g.sum(), x)
    return h.tolist(), "right: [12.0]"


@case
def numpy_random_inside():
    f = weft.compile(lambda x: x * np.random.rand())
    return f(weft.ones(1)).item() != f(weft.ones(1)).item(), "right: True, or an error that names the line"


@case
def shape_error_inside():
    def f(x, w):
        h = x * 2
        return h @ w

    return weft.compile(f)(weft.ones((2, 3)), weft.ones((2, 3)))


@case
def list_grown_until_a_condition():
    def f(x):
        out = []
        while x.sum() < 10:
            x = x * 2
            out.append(x)
        return weft.stack(out)

    g = weft.compile(f)
    return g(weft.ones(2)).tolist(), len(g(weft.ones(2) * 0.5))


@case
def large_whole_numbers():
    f = weft.compile(lambda x: x * 1000)
    return f(weft.tensor(2**31 - 1)).item(), f"right: {(2**31 - 1) * 1000}"


@case
def break_on_a_tensor():
    def f(x):
        for i in range(10):
            if x.sum() > 8:
                break
            x = x * 2
        return x

    return weft.compile(f)(weft.ones(2)).tolist()


@case
def loop_over_a_tensors_range():
    def f(x, n):
        for _ in range(n):
            x = x * 2
        return x

    g = weft.compile(f)
    return g(weft.ones(2), weft.tensor(3)).tolist(), g(weft.ones(2), weft.tensor(0)).tolist()


@case
def counter_outside():
    calls = {"n": 0}

    def f(x):
        calls["n"] += 1
        return x * 2

    g = weft.compile(f)
    for _ in range(3):
        g(weft.ones(1))
    return calls["n"], "right: 3"


@case
def parameter_replaced():
    w = weft.ones(2)
    model = {"w": w}
    f = weft.compile(lambda x: x * model["w"])
    first = f(weft.ones(2)).tolist()
    model["w"] = w * 5
    return first, f(weft.ones(2)).tolist(), "right: [1, 1], [5, 5]"


@case
def while_loop_in_reverse_with_vmap():
    def f(a):
        return weft.while_loop(lambda x: (x * x - a).abs() > 1e-5, lambda x: 0.5 * (x + a / x), weft.ones(()))

    return weft.vmap(weft.grad(f))(weft.tensor([2.0, 9.0])).tolist(), "right: [0.3536, 0.1667]"


if __name__ == "__main__":
    run_all("weft", sys.argv[1:])
