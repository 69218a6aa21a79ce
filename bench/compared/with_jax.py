"""The cases in JAX: ``python bench/compared/with_jax.py [case ...]``."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from runner import case, run_all


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x * 3


@case
def branch_on_a_tensor():
    return jax.jit(branch)(jnp.ones(2)).tolist()


@case
def newton_until_convergence():
    def f(a):
        x = jnp.ones_like(a)
        while jnp.abs(x * x - a) > 1e-5:
            x = 0.5 * (x + a / x)
        return x

    return float(jax.jit(f)(jnp.float32(2.0)))


@case
def gradient_of_a_while_loop():
    def f(a):
        return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-5, lambda x: 0.5 * (x + a / x), jnp.ones(()))

    return float(jax.grad(f)(2.0)), "right: 0.3536"


@case
def early_returns():
    def f(x):
        if x[0] > 0:
            if x[1] > 0:
                return x * 2
            return x * 3
        return x * 4

    return jax.jit(f)(jnp.ones(2)).tolist()


FACTOR = 2.0


@case
def global_changed():
    global FACTOR
    FACTOR = 2.0
    f = jax.jit(lambda x: x * FACTOR)
    first = f(jnp.ones(1)).item()
    FACTOR = 5.0
    return first, f(jnp.ones(1)).item(), "right: 2.0, 5.0"


@case
def array_changed():
    table = np.ones(2, np.float32)
    f = jax.jit(lambda x: x * table)
    first = f(jnp.ones(2)).tolist()
    table[:] = 7
    return first, f(jnp.ones(2)).tolist(), "right: [1, 1], [7, 7]"


@case
def attribute_changed():
    class Model:
        training = True

        def __call__(self, x):
            return x * 2 if self.training else x

    m = Model()
    f = jax.jit(m.__call__)
    first = f(jnp.ones(1)).item()
    m.training = False
    return first, f(jnp.ones(1)).item(), "right: 2.0, 1.0"


@case
def tensor_kept_outside():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x

    g = jax.jit(f)
    g(jnp.ones(1))
    g(jnp.ones(1))
    return len(kept), [float(k) for k in kept], "right: 2 items"


@case
def print_inside():
    def f(x):
        print("value", x)
        return x * 2

    g = jax.jit(f)
    g(jnp.ones(1))
    g(jnp.ones(1) * 3)
    return "right: two lines with values"


def loop_of(n):
    def f(x):
        for _ in range(n):
            x = jnp.sin(x) * 1.01 + 0.1
        return x.sum()

    return f


@case
def compile_time_of_loops():
    times = []
    for n in (10, 100, 1000):
        f = jax.jit(jax.grad(loop_of(n)))
        x = jnp.ones(64)
        start = time.perf_counter()
        f(x).block_until_ready()
        times.append(round(time.perf_counter() - start, 2))
    return f"10 iterations {times[0]} s, 100 iterations {times[1]} s, 1000 iterations {times[2]} s"


@case
def gradient_of_where():
    def f(x):
        return jnp.where(x > 0, jnp.log(x) * x, 0.0).sum()

    return jax.grad(f)(jnp.array([0.0, 1.0])).tolist(), "right: [0, 1]"


@case
def vmap_of_a_branch():
    def f(x):
        return lax.cond(x > 0, lambda v: jnp.log(v), lambda v: v * 0, x)

    return jax.vmap(jax.grad(f))(jnp.array([0.0, 2.0])).tolist(), "right: [0, 0.5]"


@case
def vmap_of_a_square_root_branch():
    def f(x):
        return lax.cond(x > 0, lambda v: jnp.sqrt(v), lambda v: v * 0, x)

    return jax.grad(lambda v: jax.vmap(f)(v).sum())(jnp.array([0.0, 4.0])).tolist(), "right: [0, 0.25]"


@case
def value_as_a_number():
    return jax.jit(lambda x: x * int(x.sum()))(jnp.ones(3)).tolist()


@case
def mask_as_an_index():
    return jax.jit(lambda x: x[x > 0] * 2)(jnp.array([1.0, -1.0, 3.0])).tolist()


@case
def assertion_on_a_tensor():
    def f(x):
        assert (x > 0).all(), "must be positive"
        return x * 2

    g = jax.jit(f)
    g(jnp.ones(2))
    return g(-jnp.ones(2)).tolist(), "right: AssertionError"


@case
def item_assignment():
    def f(x):
        y = jnp.zeros(3)
        for i in range(3):
            y[i] = x[i] * i
        return y

    return jax.jit(f)(jnp.ones(3)).tolist()


@case
def index_out_of_bounds():
    return jax.jit(lambda x, i: x[i])(jnp.arange(3.0), jnp.array([7])).tolist(), "right: an error"


@case
def whole_training_step_as_one_graph():
    state = {"w": jnp.ones(3)}

    def step(x):
        loss, g = jax.value_and_grad(lambda w: ((w * x) ** 2).sum())(state["w"])
        state["w"] = state["w"] - 0.1 * g
        return loss

    f = jax.jit(step)
    first = float(f(jnp.ones(3)))
    return first, float(f(jnp.ones(3))), "right: 3.0, 1.92"


@case
def numpy_random_inside():
    f = jax.jit(lambda x: x * np.random.rand())
    return f(jnp.ones(1)).item() != f(jnp.ones(1)).item(), "right: True"


@case
def shape_error_inside():
    def f(x, w):
        h = x * 2
        return h @ w

    return jax.jit(f)(jnp.ones((2, 3)), jnp.ones((2, 3)))


@case
def list_grown_until_a_condition():
    def f(x):
        out = []
        while x.sum() < 10:
            x = x * 2
            out.append(x)
        return jnp.stack(out)

    return jax.jit(f)(jnp.ones(2)).tolist()


@case
def large_whole_numbers():
    return jax.jit(lambda x: x * 1000)(
        jnp.asarray(np.int64(2**31 - 1))
    ).item(), f"right: {(2**31 - 1) * 1000}"


@case
def break_on_a_tensor():
    def f(x):
        for i in range(10):
            if x.sum() > 8:
                break
            x = x * 2
        return x

    return jax.jit(f)(jnp.ones(2)).tolist()


@case
def loop_over_a_tensors_range():
    def f(x, n):
        for _ in range(n):
            x = x * 2
        return x

    return jax.jit(f)(jnp.ones(2), jnp.array(3)).tolist()


@case
def counter_outside():
    calls = {"n": 0}

    def f(x):
        calls["n"] += 1
        return x * 2

    g = jax.jit(f)
    for _ in range(3):
        g(jnp.ones(1))
    return calls["n"], "right: 3"


@case
def parameter_replaced():
    w = jnp.ones(2)
    model = {"w": w}
    f = jax.jit(lambda x: x * model["w"])
    first = f(jnp.ones(2)).tolist()
    model["w"] = w * 5
    return first, f(jnp.ones(2)).tolist(), "right: [1, 1], [5, 5]"


@case
def while_loop_in_reverse_with_vmap():
    def f(a):
        return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-5, lambda x: 0.5 * (x + a / x), jnp.ones(()))

    return jax.vmap(jax.grad(f))(jnp.array([2.0, 9.0])).tolist(), "right: [0.3536, 0.1667]"


if __name__ == "__main__":
    run_all("jax", sys.argv[1:])
