"""``weft.aot``: a function as a forward and a backward graph, equal to eager in values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.timing import least_seconds
from weft import nn
from weft.ir.interpret import interpret
from weft.transform.joint import capture_joint, split

F32 = weft.float32


def values(tensors: Any) -> list[Any]:
    return [t.detach().numpy() for t in weft.tree_leaves(tensors)]


def assert_equal(a: Any, b: Any) -> None:
    for x, y in zip(values(a), values(b), strict=True):
        np.testing.assert_array_equal(x, y)


def gradients(f: Any, args: tuple[Any, ...], variables: list[Any]) -> tuple[Any, list[Any]]:
    out = f(*args)
    total = sum((o * o).sum() for o in weft.tree_leaves(out) if o.dtype == F32 and o.requires_grad)
    return out, list(weft.autograd.grad(total, variables, allow_unused=True, materialize_grads=True))


def test_trees_in_and_out_with_parameters_from_around() -> None:
    w = weft.randn(4, 3, requires_grad=True)

    def f(x: Any, options: Any) -> Any:
        h = weft.gelu(x @ w + options["bias"])
        return {"h": h, "rows": [weft.softmax(h, axis=-1), weft.argmax(h, axis=-1)]}

    compiled = weft.aot(f, weft.TensorType((2, 4), F32), {"bias": weft.TensorType((3,), F32)})
    x, bias = weft.randn(2, 4, requires_grad=True), weft.randn(3, requires_grad=True)
    found = gradients(compiled, (x, {"bias": bias}), [x, bias, w])
    expected = gradients(f, (x, {"bias": bias}), [x, bias, w])
    assert_equal(found[0], expected[0])
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert compiled.forward.inputs[0].name == "x"
    assert compiled.forward.roles == ("arg", "arg", "param")


def test_capture_computes_nothing() -> None:
    huge = weft.TensorType((1 << 20, 1 << 20), F32)
    compiled = weft.aot(lambda x: (weft.tanh(x @ x) * x).sum(), huge)
    assert max(r.bytes for r in compiled.saved) == 4 << 40


def test_parameters_are_read_at_each_call() -> None:
    w = weft.ones(3, requires_grad=True)
    compiled = weft.aot(lambda x: x * w, weft.TensorType((3,), F32))
    with weft.no_grad():
        w += 1.0
    assert compiled(weft.ones(3)).detach().numpy().tolist() == [2.0, 2.0, 2.0]


def test_buffers_that_change_are_updates() -> None:
    plain, captured = (nn.BatchNorm1d(3) for _ in range(2))
    compiled = weft.aot(captured, weft.TensorType((5, 3), F32))
    assert captured.num_batches_tracked.item() == 0
    for i in range(3):
        x = weft.randn(5, 3) + i
        assert_equal(compiled(x), plain(x))
    assert_equal(list(captured.buffers()), list(plain.buffers()))
    assert "state" in compiled.forward.roles


def test_random_draws_follow_the_generator() -> None:
    def f(x: Any) -> Any:
        return weft.dropout(weft.tanh(x), 0.5) + weft.randn(4)

    compiled = weft.aot(f, weft.TensorType((4,), F32))
    x = weft.ones(4, requires_grad=True)
    runs = []
    for run in (compiled, f):
        weft.manual_seed(5)
        runs.append([*gradients(run, (x,), [x])[1], run(x), run(x), weft.rand(2)])
    assert_equal(*runs)
    assert not (runs[0][1] == runs[0][2]).all()
    assert "bool[4]" in [str(r.type) for r in compiled.saved]


def test_named_sizes_stay_open() -> None:
    w = weft.randn(4, 3, requires_grad=True)
    compiled = weft.aot(lambda x: weft.tanh(x @ w).sum(), weft.TensorType(("batch", 4), F32))
    assert str(compiled.forward.inputs[0].type) == "f32[batch,4]"
    for rows in (1, 7):
        x = weft.randn(rows, 4, requires_grad=True)
        found = weft.autograd.grad(compiled(x), [x, w])
        expected = weft.autograd.grad(weft.tanh(x @ w).sum(), [x, w])
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_gradients_of_gradients() -> None:
    w = weft.randn(3, 3, dtype=weft.float64, requires_grad=True)

    def f(x: Any) -> Any:
        return (weft.tanh(x @ w) * x.detach()).sum()

    compiled = weft.aot(f, weft.TensorType((3, 3), weft.float64))
    x = weft.randn(3, 3, dtype=weft.float64, requires_grad=True)
    results = []
    for run in (compiled, f):
        (first,) = weft.autograd.grad(run(x), x, create_graph=True)
        results.append(weft.autograd.grad((first * first).sum(), [x, w]))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def test_gradients_agree_with_finite_differences() -> None:
    compiled = weft.aot(
        lambda x, y: weft.sin(x @ y).sum(axis=0), *[weft.TensorType((3, 3), weft.float64)] * 2
    )
    inputs = [weft.randn(3, 3, dtype=weft.float64, requires_grad=True) for _ in range(2)]
    weft.testing.gradcheck(compiled, tuple(inputs))


def test_hooks_and_retained_gradients_work_around_it() -> None:
    compiled = weft.aot(lambda x: x * x, weft.TensorType((2,), F32))
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    y = compiled(x * 2.0)
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g) or g * 10.0)
    y.sum().backward()
    assert x.grad.numpy().tolist() == [80.0, 160.0]
    assert len(seen) == 1
    assert repr(y.grad_fn) == "<LambdaBackward>"
    with pytest.raises(weft.errors.FreedGraphError):
        y.sum().backward()


def test_inside_transforms_and_captures_it_runs_by_its_ops() -> None:
    compiled = weft.aot(lambda x: weft.sin(x) * x, weft.TensorType((3,), F32))
    xs = weft.randn(5, 3)
    np.testing.assert_allclose(weft.vmap(compiled)(xs).numpy(), (weft.sin(xs) * xs).numpy(), rtol=1e-6)
    _, tangent = weft.jvp(compiled, (xs[0],), (weft.ones(3),))
    np.testing.assert_allclose(
        tangent.numpy(), (weft.cos(xs[0]) * xs[0] + weft.sin(xs[0])).numpy(), rtol=1e-5
    )
    graph = weft.make_graph(lambda x: compiled(x) + 1.0)(xs[0])
    np.testing.assert_array_equal(interpret(graph, [xs[0].numpy()])[0], (compiled(xs[0]) + 1.0).numpy())


def test_argnums_choose_what_is_differentiated() -> None:
    one = weft.TensorType((2,), F32)
    f = weft.aot(lambda a, b, c: a * b * c, one, one, one, argnums=(0, 2))
    assert len(f.backward.outputs) == 2
    asked = weft.aot(lambda a, b: a * b, weft.ones(2), weft.ones(2, requires_grad=True))
    assert len(asked.backward.outputs) == 1
    with pytest.raises(weft.errors.ArgumentError, match="argnums must name one of the 3"):
        weft.aot(lambda a, b, c: a, one, one, one, argnums=5)


def test_control_flow_from_source_and_by_hand() -> None:
    def f(x: Any) -> Any:
        total = weft.zeros(())
        for i in range(3):
            if total < 2.0:
                total = total + weft.sin(x).sum() * (i + 1)
        return weft.cond(total > 0.0, lambda t: t * t, lambda t: -t, total)

    compiled = weft.aot(f, weft.TensorType((4,), F32))
    for seed in range(3):
        weft.manual_seed(seed)
        x = weft.randn(4, requires_grad=True)
        (found,), (expected,) = (weft.autograd.grad(run(x), x) for run in (compiled, f))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def test_saved_values_name_the_users_lines() -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.tanh(x @ w).sum()  # the line

    compiled = weft.aot(f, weft.TensorType((4, 4), F32), weft.TensorType((4, 4), F32))
    (residual,) = compiled.saved
    assert residual.bytes == 64
    assert str(residual).endswith("return weft.tanh(x @ w).sum()  # the line")
    assert repr(compiled) == "<aot f: 1 values of 64 bytes saved>"


def test_joint_graph_gives_results_and_gradients() -> None:
    compiled = weft.aot(lambda x: weft.exp(x), weft.TensorType((2,), F32))
    x, g = np.array([0.0, 1.0], F32), np.array([1.0, 2.0], F32)
    y, dx = interpret(compiled.joint, [x, g])
    np.testing.assert_allclose([y, dx], [np.exp(x), np.exp(x) * g], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: weft.aot(3), "aot"),
        (lambda: weft.aot(lambda x: x, "name"), "examples must be tensors, arrays or types, got str"),
        (lambda: weft.aot(lambda x: None, weft.ones(2)), "the function must return tensors, got None"),
        (
            lambda: weft.aot(lambda x: x.__iadd__(1), weft.ones(2), argnums=()),
            "must not change its arguments",
        ),
        (lambda: weft.aot(lambda x: x, weft.ones(2))(weft.ones(2), weft.ones(2)), "the arguments"),
    ],
)
def test_wrong_uses_are_named(call: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        call()
    assert message in str(error.value)


def test_backward_inside_is_refused() -> None:
    w = weft.ones(2, requires_grad=True)

    def f(x: Any) -> Any:
        (x * w).sum().backward()
        return x

    with pytest.raises(weft.errors.CaptureError, match="must not change the gradient of a tensor"):
        weft.aot(f, weft.ones(2))
    assert w.grad is None


def test_split_of_a_transformer_takes_little_time() -> None:

    layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(12)]
    model = nn.Sequential(*layers)
    graph = weft.make_graph(model)(weft.ones((2, 4, 16)))
    joint = capture_joint(graph, [i for i, v in enumerate(graph.inputs) if v.type.dtype == F32])
    derivative = split(joint, free=range(1, len(graph.inputs)))
    assert least_seconds(lambda: split(joint, free=range(1, len(graph.inputs))), 0.3) < 0.3
    assert len(joint.capture.nodes) > 1500
    assert derivative.saved < 200


class Odd(weft.Function):
    """A square whose gradient is said to be ten times its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 10.0 * x


def without_gradient(x: Any) -> Any:
    with weft.no_grad():
        c = x * 2.0
    return x * c


def hooked(x: Any) -> Any:
    y = x * x
    y.register_hook(lambda g: g * 5.0)
    return (y * y).sum()


PROGRAMS: dict[str, Any] = {
    "no_grad": lambda x: without_gradient(x).sum(),
    "grad inside": lambda x: weft.grad(lambda y: (y**3).sum())(x).sum(),
    "checkpoint": lambda x: weft.checkpoint(lambda y: weft.sin(y) * y, x).sum(),
    "scan": lambda x: weft.scan(lambda c, t: (c * t.sin(), c), x.sum(), x)[1].sum(),
    "while": lambda x: weft.while_loop(lambda y: y.sum() < 10.0, lambda y: y * 1.5, x.abs() + 0.1).sum(),
    "vmap inside": lambda x: weft.vmap(lambda y: weft.tanh(y) * y)(x).sum(),
    "in place": lambda x: (x * 2.0).__imul__(x).sum(),
    "input returned": lambda x: x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_has_the_gradients_of_eager_to_second_order(name: str) -> None:
    f = PROGRAMS[name]
    compiled = weft.aot(f, weft.TensorType((4,), weft.float64))
    weft.manual_seed(0)
    x = weft.randn(4, dtype=weft.float64, requires_grad=True)
    results = []
    for run in (compiled, f):
        (first,) = weft.autograd.grad(run(x).sum(), x, create_graph=True)
        second = weft.autograd.grad((first * first).sum(), x) if first.requires_grad else ()
        results.append([first, *second])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("f", [lambda x: (Odd.apply(x) * x).sum(), hooked], ids=["function", "hook"])
def test_gradients_that_ops_do_not_tell_are_those_of_eager_or_refused(f: Any) -> None:
    compiled = weft.aot(f, weft.TensorType((3,), F32))
    x = weft.tensor([1.0, -2.0, 0.5], requires_grad=True)
    results = []
    for run in (f, compiled):
        for create_graph in (False, True):
            (g,) = weft.autograd.grad(run(x), x, create_graph=create_graph)
            results.append(g.detach().numpy())
    for found in results[1:]:
        np.testing.assert_allclose(found, results[0], rtol=1e-6)
    with pytest.raises(weft.errors.GradientError, match="must be differentiated once"):
        weft.autograd.grad(g.sum(), x)
    for call in (weft.vmap(weft.grad(compiled)), weft.vmap(compiled), weft.compile(lambda t: compiled(t[0]))):
        with pytest.raises(weft.errors.GradientError, match="its ops do not tell its gradient"):
            call(weft.ones(2, 3))
    with weft.no_grad():
        assert weft.vmap(compiled)(weft.ones(2, 3)).shape == (2,)


@pytest.mark.parametrize("name", ["scan", "while"])
def test_loops_run_once_forward_and_once_back(name: str) -> None:
    compiled = weft.aot(PROGRAMS[name], weft.TensorType((4,), F32))
    for graph in (compiled.forward, compiled.backward):
        assert sum(bool(n.regions) for n in graph.nodes) == 1
    assert compiled.saved
