"""``weft.compile``: values, gradients, versions, and how compiled and eager code mix."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import assert_same
from weft.errors import ArgumentError, CaptureError, DomainError

# What can be compiled


def test_decorator_without_arguments_gives_what_the_function_gives() -> None:
    @weft.compile
    def norm(x: Any) -> Any:
        return (x * x).sum().sqrt()

    assert norm(weft.tensor([3.0, 4.0])).item() == 5.0
    assert norm.__name__ == "norm"


def test_decorator_with_arguments_compiles_with_them() -> None:
    @weft.compile(capture="trace", passes=[])
    def f(x: Any) -> Any:
        return x * 1.0 + 1.0

    assert f(weft.ones(2)).tolist() == [2.0, 2.0]
    assert [n.op.name for n in f.graph.nodes] == ["mul", "add"]


@pytest.mark.parametrize("capture", ["source", "trace"])
def test_trees_keywords_and_defaults_pass_through(capture: str) -> None:
    def f(params: Any, x: Any, *rest: Any, scale: float = 2.0, **more: Any) -> Any:
        out = x @ params["w"] + params["b"][0]
        for r in rest:
            out = out + r
        return {"out": out * scale, "more": (more.get("extra"), 3, "text", None)}

    params = {"w": weft.ones(3, 2), "b": [weft.ones(2)]}
    x = weft.arange(6, dtype=weft.float32).reshape(2, 3)
    compiled = weft.compile(f, capture=capture)
    for _ in range(2):
        assert_same(compiled(params, x), f(params, x))
        assert_same(compiled(params, x, x[:, :2], scale=3.0), f(params, x, x[:, :2], scale=3.0))
        assert_same(compiled(params, x=x, extra=x), f(params, x=x, extra=x))


def test_methods_modules_lambdas_closures_and_partials_compile() -> None:
    class Affine:
        def __init__(self, scale: float) -> None:
            self.scale = scale
            self.bias = weft.ones(2)

        @weft.compile
        def apply(self, x: Any) -> Any:
            return x * self.scale + self.bias

        def __call__(self, x: Any) -> Any:
            return x * self.scale - self.bias

    two, three = Affine(2.0), Affine(3.0)
    x = weft.tensor([1.0, 2.0])
    assert two.apply(x).tolist() == [3.0, 5.0]
    assert three.apply(x).tolist() == [4.0, 7.0]
    assert weft.compile(two)(x).tolist() == [1.0, 3.0]
    assert weft.compile(two).scale == 2.0

    class Doubled:
        factor = 2.0

        def forward(self, x: Any) -> Any:
            return x * self.factor

    assert weft.compile(Doubled())(x).tolist() == [2.0, 4.0]
    assert weft.jit.trace(Doubled(), x)(x).tolist() == [2.0, 4.0]
    assert weft.compile(lambda x: x + x)(x).tolist() == [2.0, 4.0]
    offset = weft.tensor([10.0, 20.0])
    assert weft.compile(lambda x: x + offset)(x).tolist() == [11.0, 22.0]
    assert weft.compile(functools.partial(weft.sub, offset))(x).tolist() == [9.0, 18.0]


def test_results_may_be_arguments_outside_tensors_and_shared() -> None:
    w = weft.ones(2)

    @weft.compile
    def f(x: Any) -> Any:
        y = x + w
        return x, w, y, y

    x = weft.tensor([1.0, 2.0])
    for _ in range(2):
        a, b, c, d = f(x)
        assert (a is x, b is w, c is d) == (True, True, True)
    assert f(x)[2] is not c


def test_arrays_are_inputs_not_constants() -> None:
    f = weft.compile(lambda x: x * 2.0)
    assert f(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert f(np.full(2, 3.0, np.float32)).tolist() == [6.0, 6.0]
    assert len(f.versions) == 1


def test_same_tensor_twice_is_not_mistaken_for_two() -> None:
    @weft.compile
    def f(x: Any, y: Any) -> Any:
        x += 1.0
        return x * y

    a, b = weft.tensor([1.0]), weft.tensor([10.0])
    assert f(a, b).item() == 20.0
    c = weft.tensor([3.0])
    assert f(c, c).item() == 16.0
    assert (a.item(), c.item()) == (2.0, 4.0)


def test_argument_that_is_also_a_tensor_from_outside_is_noticed() -> None:
    w = weft.tensor([2.0])

    @weft.compile
    def f(x: Any) -> Any:
        x += 1.0
        return x * w

    assert f(weft.tensor([1.0])).item() == 4.0
    assert f(w).item() == 9.0
    assert f(weft.tensor([1.0])).item() == 6.0


def test_arguments_with_unhashable_parts_are_compared() -> None:
    class Box:
        def __init__(self, x: Any, names: list[str]) -> None:
            self.x = x
            self.names = names

    weft.register_tree(Box, lambda box: ((box.x,), box.names), lambda names, parts: Box(parts[0], names))
    f = weft.compile(lambda box: box.x * len(box.names))
    x = weft.ones(1)
    assert [f(Box(x, names)).item() for names in (["a"], ["a", "b"], ["a"])] == [1.0, 2.0, 1.0]
    assert len(f.versions) == 2


def count() -> Any:
    yield weft.ones(1)


def test_bad_arguments_of_compile_are_named() -> None:
    with pytest.raises(ArgumentError, match="compile: takes a function or a module, got int"):
        weft.compile(3)
    with pytest.raises(
        ArgumentError, match="compile: takes a function that returns, got the generator count"
    ):
        weft.compile(count)
    with pytest.raises(DomainError, match='capture must be "source" or "trace", got \'x\''):
        weft.compile(lambda x: x, capture="x")
    with pytest.raises(DomainError, match=r"backend: must be one of .*interpret.*, got 'gpu'"):
        weft.compile(lambda x: x, backend="gpu")


def test_backend_may_be_a_function() -> None:
    from weft.backends import backend_named

    seen = []

    def mine(graph: Any) -> Any:
        seen.append(graph.name)
        return backend_named("interpret")(graph)

    assert weft.compile(lambda x: x + 1.0, backend=mine)(weft.ones(1)).item() == 2.0
    assert len(seen) == 1


# Versions


def test_other_types_make_other_versions_and_both_stay() -> None:
    f = weft.compile(lambda x: x.sum())
    for _ in range(2):
        assert f(weft.ones(2)).item() == 2.0
        assert f(weft.ones(3)).item() == 3.0
        assert f(weft.ones(3, dtype=weft.int64)).item() == 3
    assert len(f.versions) == 3


def test_values_of_plain_arguments_are_part_of_the_key() -> None:
    f = weft.compile(lambda x, n: x * n)
    x = weft.ones(1)
    assert [f(x, n).item() for n in (1, 2, 1, 2.0)] == [1.0, 2.0, 1.0, 2.0]
    assert len(f.versions) == 3
    zero = weft.compile(lambda x, n: weft.copysign(x, weft.tensor(n)))
    assert [zero(x, n).item() for n in (0.0, -0.0, float("nan"))][:2] == [1.0, -1.0]


def test_value_that_takes_another_way_is_captured_anew_in_a_trace() -> None:
    @weft.compile(capture="trace")
    def f(x: Any) -> Any:
        return x * 2.0 if x.sum() > 0 else -x

    up, down = weft.tensor([1.0]), weft.tensor([-1.0])
    assert [f(x).item() for x in (up, down, up, down)] == [2.0, 1.0, 2.0, 1.0]
    assert len(f.versions) == 2


def test_many_versions_warn_once_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.capture.call.function.MANY_VERSIONS", 3)
    monkeypatch.setattr("weft.capture.call.versions.MOST_VERSIONS", 4)
    f = weft.compile(lambda x, n: x * n)
    x = weft.ones(1)
    with pytest.warns(UserWarning, match=r"captured 4 times, lately n was 2 and is 3") as caught:
        found = [f(x, n).item() for n in range(8)]
    assert found == list(range(8))
    assert len(caught) == 1
    assert len(f.versions) == 4


def test_least_recently_used_version_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.capture.call.versions.MOST_VERSIONS", 2)
    f = weft.compile(lambda x, n: x * n)
    x = weft.ones(1)
    f(x, 1), f(x, 2), f(x, 1), f(x, 3)
    assert sorted(v.key.leaves[1][1] for v in f.versions) == [1, 3]


def test_grad_mode_and_default_dtype_are_part_of_the_key() -> None:
    w = weft.ones(2, requires_grad=True)
    f = weft.compile(lambda x: (x * w, weft.ones(1)))
    x = weft.ones(2)
    assert f(x)[0].requires_grad
    with weft.no_grad():
        assert not f(x)[0].requires_grad
    before = weft.get_default_dtype()
    try:
        weft.set_default_dtype(weft.float64)
        assert f(x)[1].dtype == weft.float64
    finally:
        weft.set_default_dtype(before)
    assert f(x)[1].dtype == weft.float32


# What is kept alive


def test_compiled_function_keeps_neither_arguments_nor_captures_alive() -> None:
    from weft.capture.record.root import Root

    def f(x: Any) -> Any:
        (x * x).sum().backward()
        return weft.rand(2) + x.detach()

    compiled = weft.compile(f)
    x = weft.ones(2, requires_grad=True)
    reference = weakref.ref(x)
    compiled(x), compiled(x)
    del x
    gc.collect()
    assert reference() is None
    assert not any(isinstance(o, Root) for o in gc.get_objects())


def test_compiled_methods_die_with_their_object() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = weft.ones(2)

        @weft.compile
        def apply(self, x: Any) -> Any:
            return x * self.weight

    model = Model()
    assert model.apply(weft.ones(2)).tolist() == [1.0, 1.0]
    assert model.apply is model.apply
    other = copy.deepcopy(model)
    other.weight = weft.full((2,), 3.0)
    assert other.apply(weft.ones(2)).tolist() == [3.0, 3.0]
    assert model.apply(weft.ones(2)).tolist() == [1.0, 1.0]
    held = {"f": weft.compile(model.apply), "g": weft.compile(lambda x: x + 1.0)}
    assert [f(weft.ones(2)).tolist() for f in copy.deepcopy(held).values()] == [[1.0, 1.0], [2.0, 2.0]]
    reference = weakref.ref(model)
    del model, held
    gc.collect()
    assert reference() is None


# Failure leaves everything as it was


def test_error_while_capturing_changes_nothing() -> None:
    weft.manual_seed(0)
    w = weft.ones(2, requires_grad=True)
    holder = {"last": None}

    @weft.compile
    def f(x: Any) -> Any:
        holder["last"] = x
        (x * w).sum().backward()
        with weft.no_grad():
            w.__imul__(weft.rand(2))
        raise RuntimeError("no")

    state = weft.get_rng_state().tolist()
    with pytest.raises(RuntimeError, match="no"):
        f(weft.ones(2))
    assert (w.tolist(), w.grad, holder) == ([1.0, 1.0], None, {"last": None})
    assert weft.get_rng_state().tolist() == state
    assert (w * 2.0).tolist() == [2.0, 2.0]


def test_error_while_running_changes_nothing() -> None:
    w = weft.zeros(2)

    @weft.compile
    def f(x: Any) -> Any:
        w.__iadd__(1.0)
        assert (x > 0).all(), "positive"
        return w * x

    f(weft.ones(2))
    with pytest.raises(AssertionError, match="positive"):
        f(-weft.ones(2))
    assert w.tolist() == [1.0, 1.0]


def test_tensor_that_outlives_its_capture_names_both_lines() -> None:
    kept: list[Any] = []

    def store(x: Any) -> Any:
        kept.append(x * 2.0)  # the first line
        return x

    from weft.transform.building import capturing

    with capturing("f"):
        store(weft.ones(1))
    with pytest.raises(CaptureError) as error:
        kept[0] + 1.0
    for line in ("the first line", "kept[0] + 1.0"):
        assert line in str(error.value)


# Threads


def test_threads_capture_and_call_at_once() -> None:
    w = weft.ones(4, requires_grad=True)

    @weft.compile
    def f(x: Any) -> Any:
        return (weft.tanh(x * w) + w).sum()

    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(k: int) -> None:
        try:
            start.wait()
            for i in range(20):
                x = weft.full((4,), float(k)) if i % 2 else weft.full((2, 4), float(k))
                np.testing.assert_allclose(f(x).item(), (np.tanh(x.numpy()) + 1.0).sum(), rtol=1e-5)
                np.testing.assert_allclose((w * 2.0).detach().numpy(), 2.0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_eager_code_of_other_threads_goes_on_while_one_captures() -> None:
    w = weft.ones(4, requires_grad=True)
    failures: list[Any] = []
    until = time.monotonic() + 1.0

    def expect(found: Any, expected: Any) -> None:
        if found != expected:
            failures.append((found, expected))

    def capture() -> None:
        for k in itertools.count(1):
            if time.monotonic() > until:
                return
            expect(weft.compile(lambda x: ((x + w) * k).sum())(weft.zeros(4)).item(), 4.0 * k)  # noqa: B023

    def compute() -> None:
        while time.monotonic() < until:
            x = weft.ones(4, requires_grad=True)
            (x * w.detach() * w).sum().backward(inputs=[x])
            expect(x.grad.tolist(), [1.0] * 4)
            expect((w * 2.0).sum().item() + float(w[0]) + len(w.tolist()), 13.0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as pool:
            for future in [pool.submit(capture), pool.submit(compute), pool.submit(compute)]:
                future.result()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_threads_draw_different_numbers_from_one_compiled_function() -> None:
    weft.manual_seed(0)
    f = weft.compile(lambda x: weft.rand(1) + x)
    drawn: list[float] = []

    def work() -> None:
        drawn.extend(f(weft.zeros(1)).item() for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(drawn)) == 40
    weft.manual_seed(0)
    assert set(drawn) == {weft.rand(1).item() for _ in range(40)}


# Traces of Python


def test_traceback_of_a_weft_error_ends_at_the_users_line() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        return x @ x

    with pytest.raises(weft.errors.ShapeError) as error:
        f(weft.ones(2, 3))
    assert error.traceback[-1].path.name == "test_compile.py"
    assert "return x @ x" in str(error.value)
