"""The cases in PyTorch: ``python bench/compared/with_torch.py [case ...]``."""

import sys
import time

import numpy as np
import torch
from runner import case, run_all

torch._logging.set_logs(recompiles=False)


def compiled(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, fullgraph=True, **options)


def loose(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, **options)


def graphs_of(f, *args):
    torch._dynamo.reset()
    found = torch._dynamo.explain(f)(*args)
    return f"{found.graph_count} graphs, {found.graph_break_count} breaks"


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x * 3


@case
def trace_takes_the_other_branch():
    f = torch.jit.trace(branch, torch.ones(2))
    return f(-torch.ones(2)).tolist(), "right: [-3.0, -3.0]"


@case
def branch_on_a_tensor():
    return compiled(branch)(torch.ones(2)).tolist()


@case
def branch_on_a_tensor_in_pieces():
    return graphs_of(branch, torch.ones(2))


@case
def newton_until_convergence():
    def f(a):
        x = torch.ones_like(a)
        while (x * x - a).abs() > 1e-5:
            x = 0.5 * (x + a / x)
        return x

    return compiled(f)(torch.tensor(2.0)).item()


@case
def gradient_of_a_while_loop():
    from torch._higher_order_ops.while_loop import while_loop

    a = torch.tensor(2.0, requires_grad=True)

    def f(a):
        x, _ = while_loop(
            lambda x, a: (x * x - a).abs() > 1e-5,
            lambda x, a: (0.5 * (x + a / x), a.clone()),
            (torch.ones(()), a),
        )
        return x

    compiled(f)(a).backward()
    return a.grad.item(), "right: 0.3536"


@case
def early_returns():
    def f(x):
        if x[0] > 0:
            if x[1] > 0:
                return x * 2
            return x * 3
        return x * 4

    return compiled(f)(torch.ones(2)).tolist()


FACTOR = 2.0


@case
def global_changed():
    global FACTOR
    FACTOR = 2.0
    f = compiled(lambda x: x * FACTOR)
    first = f(torch.ones(1)).item()
    FACTOR = 5.0
    return first, f(torch.ones(1)).item(), "right: 2.0, 5.0"


@case
def array_changed():
    table = np.ones(2, np.float32)
    f = compiled(lambda x: x * torch.from_numpy(table))
    first = f(torch.ones(2)).tolist()
    table[:] = 7
    return first, f(torch.ones(2)).tolist(), "right: [1, 1], [7, 7]"


@case
def attribute_changed():
    class Model:
        training = True

        def __call__(self, x):
            return x * 2 if self.training else x

    m = Model()
    f = compiled(m.__call__)
    first = f(torch.ones(1)).item()
    m.training = False
    return first, f(torch.ones(1)).item(), "right: 2.0, 1.0"


@case
def tensor_kept_outside():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x

    g = compiled(f)
    g(torch.ones(1))
    g(torch.ones(1))
    return len(kept), [k.item() for k in kept], "right: 2 items"


@case
def print_inside():
    def f(x):
        print("value", x)
        return x * 2

    g = compiled(f)
    g(torch.ones(1))
    g(torch.ones(1) * 3)
    return "right: two lines with values"


def loop_of(n):
    def f(x):
        for _ in range(n):
            x = torch.sin(x) * 1.01 + 0.1
        return x.sum()

    return f


@case
def compile_time_of_loops():
    times = []
    for n in (10, 100):
        f = compiled(loop_of(n))
        x = torch.ones(64, requires_grad=True)
        start = time.perf_counter()
        f(x).backward()
        times.append(round(time.perf_counter() - start, 2))
    return f"10 iterations {times[0]} s, 100 iterations {times[1]} s"


@case
def gradient_of_where():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.where(x > 0, torch.log(x) * x, 0.0).sum().backward()
    return x.grad.tolist(), "right: [0, 1]"


@case
def vmap_of_a_branch():
    def f(x):
        return torch.cond(x > 0, lambda v: torch.log(v), lambda v: v * 0, (x,))

    return torch.vmap(torch.func.grad(f))(torch.tensor([0.0, 2.0])).tolist(), "right: [0, 0.5]"


@case
def value_as_a_number():
    return compiled(lambda x: x * int(x.sum()))(torch.ones(3)).tolist()


@case
def mask_as_an_index():
    return compiled(lambda x: x[x > 0] * 2)(torch.tensor([1.0, -1.0, 3.0])).tolist()


@case
def twenty_settings_of_one_function():
    torch._dynamo.reset()
    compiled_for = []

    def backend(graph, inputs):
        compiled_for.append(1)
        return graph

    class Model:
        mode = ""

        def __call__(self, x):
            return x * len(self.mode)

    m = Model()
    f = torch.compile(m.__call__, backend=backend)
    for k in range(20):
        m.mode = "a" * k
        f(torch.ones(3))
    return f"{len(compiled_for)} compilations for 20 settings, the rest runs eager"


@case
def assertion_on_a_tensor():
    def f(x):
        assert (x > 0).all(), "must be positive"
        return x * 2

    g = compiled(f)
    g(torch.ones(2))
    return g(-torch.ones(2)).tolist(), "right: AssertionError"


@case
def item_assignment():
    def f(x):
        y = torch.zeros(3)
        for i in range(3):
            y[i] = x[i] * i
        return y

    return compiled(f)(torch.ones(3)).tolist()


@case
def index_out_of_bounds():
    return compiled(lambda x, i: x[i])(torch.ones(3), torch.tensor([7])).tolist()


@case
def whole_training_step():
    w = torch.ones(3, requires_grad=True)

    def step(x):
        w.grad = None
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
        return loss

    return graphs_of(step, torch.ones(3))


@case
def whole_training_step_as_one_graph():
    w = torch.ones(3, requires_grad=True)

    def step(x):
        w.grad = None
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
        return loss

    return compiled(step)(torch.ones(3)).item()


@case
def double_backward():
    f = compiled(lambda x: (x * x * x).sum())
    x = torch.tensor([2.0], requires_grad=True)
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return h.tolist(), "right: [12.0]"


@case
def numpy_random_inside():
    f = compiled(lambda x: x * np.random.rand())
    return f(torch.ones(1)).item() != f(torch.ones(1)).item(), "right: True"


@case
def shape_error_inside():
    def f(x, w):
        h = x * 2
        return h @ w

    return compiled(f)(torch.ones(2, 3), torch.ones(2, 3))


@case
def list_grown_until_a_condition():
    def f(x):
        out = []
        while x.sum() < 10:
            x = x * 2
            out.append(x)
        return torch.stack(out)

    return compiled(f)(torch.ones(2)).tolist()


@case
def large_whole_numbers():
    return compiled(lambda x: x * 1000)(torch.tensor(2**40)).item(), f"right: {2**40 * 1000}"


@case
def break_on_a_tensor():
    def f(x):
        for i in range(10):
            if x.sum() > 8:
                break
            x = x * 2
        return x

    return compiled(f)(torch.ones(2)).tolist()


@case
def loop_over_a_tensors_range():
    def f(x, n):
        for _ in range(n):
            x = x * 2
        return x

    return compiled(f)(torch.ones(2), torch.tensor(3)).tolist()


@case
def counter_outside():
    calls = {"n": 0}

    def f(x):
        calls["n"] += 1
        return x * 2

    g = compiled(f)
    for _ in range(3):
        g(torch.ones(1))
    return calls["n"], "right: 3"


if __name__ == "__main__":
    run_all("torch", sys.argv[1:])
