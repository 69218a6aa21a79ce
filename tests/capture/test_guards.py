"""Never stale: Python values that captured code read are noticed when they change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import weft
from tests.timing import least_seconds
from weft.capture.program import guards
from weft.capture.program.guards import Guards, compile_check, same
from weft.capture.program.slots import AttrSlot, CellSlot, ItemSlot

SCALE: Any = 2.0
WEIGHT: Any = None
SETTINGS: dict[str, Any] = {"factor": 2.0, "names": ["a", "b"]}
TABLE = np.array([1.0, 2.0], np.float32)
BOTH = pytest.mark.parametrize("capture", ["source", "trace"])


def helper(x: Any, by: float = 1.0) -> Any:
    return x * SCALE * by


class Layer:
    gain = 1.0

    def __init__(self) -> None:
        self.training = True
        self.rate = 0.5
        self.weight = weft.tensor([1.0, 2.0])
        self.parts = [1.0, 2.0]

    def __call__(self, x: Any) -> Any:
        out = x * self.weight * self.gain
        return out * self.rate if self.training else out


@BOTH
def test_global_is_noticed(capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.compile(lambda x: x * SCALE, capture=capture)
    x = weft.ones(1)
    assert f(x).item() == 2.0
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert f(x).item() == 3.0
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert f(x).item() == 2.0
    assert len(f.versions) == 2


@BOTH
def test_global_read_by_a_function_that_is_called_is_noticed(
    capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = weft.compile(lambda x: helper(x), capture=capture)
    assert f(weft.ones(1)).item() == 2.0
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert f(weft.ones(1)).item() == 3.0


def test_rebound_global_tensor_is_noticed_and_changed_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weft.tensor([2.0])
    monkeypatch.setitem(globals(), "WEIGHT", w)
    f = weft.compile(lambda x: x * WEIGHT)
    assert f(weft.ones(1)).item() == 2.0
    w += 1.0
    assert f(weft.ones(1)).item() == 3.0
    assert len(f.versions) == 1
    monkeypatch.setitem(globals(), "WEIGHT", weft.tensor([7.0]))
    assert f(weft.ones(1)).item() == 7.0


@BOTH
def test_closure_variable_is_noticed(capture: str) -> None:
    factor = 2.0

    def f(x: Any) -> Any:
        return x * factor

    compiled = weft.compile(f, capture=capture)
    assert compiled(weft.ones(1)).item() == 2.0
    factor = 5.0
    assert compiled(weft.ones(1)).item() == 5.0


@BOTH
def test_attributes_of_objects_are_noticed(capture: str) -> None:
    layer = Layer()
    f = weft.compile(layer, capture=capture)
    x = weft.ones(2)
    assert f(x).tolist() == [0.5, 1.0]
    layer.training = False
    assert f(x).tolist() == [1.0, 2.0]
    layer.training = True
    layer.rate = 0.25
    assert f(x).tolist() == [0.25, 0.5]
    layer.weight = weft.tensor([3.0, 4.0])
    assert f(x).tolist() == [0.75, 1.0]
    layer.gain = 2.0
    assert f(x).tolist() == [1.5, 2.0]


def test_class_attribute_and_method_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()
    f = weft.compile(lambda x: layer(x) * layer.gain)
    assert f(weft.ones(2)).tolist() == [0.5, 1.0]
    monkeypatch.setattr(Layer, "gain", 2.0)
    assert f(weft.ones(2)).tolist() == [2.0, 4.0]


def test_items_of_dicts_and_lists_are_noticed() -> None:
    settings = {"factor": 2.0, "list": [1.0, 2.0]}

    @weft.compile
    def f(x: Any) -> Any:
        for value in settings["list"]:  # type: ignore[attr-defined]
            x = x + value
        return x * settings["factor"]

    x = weft.ones(1)
    assert f(x).item() == 8.0
    settings["factor"] = 3.0
    assert f(x).item() == 12.0
    settings["list"][0] = 2.0
    assert f(x).item() == 15.0
    settings["list"].append(1.0)  # type: ignore[attr-defined]
    assert f(x).item() == 18.0


def test_membership_length_and_missing_attributes_are_noticed() -> None:
    class Options:
        pass

    options, names, chosen = Options(), {"a"}, [1.0, 2.0]

    @weft.compile
    def f(x: Any) -> Any:
        if "bias" in names:
            x = x + 10.0
        if hasattr(options, "scale"):
            x = x * options.scale
        return x * len(chosen) * getattr(options, "factor", 1.0)

    x = weft.ones(1)
    assert f(x).item() == 2.0
    names.add("bias")
    assert f(x).item() == 22.0
    options.scale = 2.0  # type: ignore[attr-defined]
    assert f(x).item() == 44.0
    chosen.append(3.0)
    assert f(x).item() == 66.0
    options.factor = 0.5  # type: ignore[attr-defined]
    assert f(x).item() == 33.0
    names.clear()
    assert f(x).item() == 3.0


def test_defaults_are_noticed() -> None:
    def f(x: Any, by: float = 2.0, *, plus: float = 0.0) -> Any:
        return helper(x) * by + plus

    compiled = weft.compile(f)
    x = weft.ones(1)
    assert compiled(x).item() == 4.0
    f.__defaults__ = (3.0,)
    assert compiled._function is f
    assert compiled(x).item() == 6.0
    f.__kwdefaults__ = {"plus": 1.0}
    assert compiled(x).item() == 7.0
    helper.__defaults__ = (2.0,)
    try:
        assert compiled(x).item() == 13.0
    finally:
        helper.__defaults__ = (1.0,)


def test_elements_of_arrays_are_noticed() -> None:
    table = TABLE.copy()
    f = weft.compile(lambda x: x + weft.tensor(table))
    x = weft.zeros(2)
    assert f(x).tolist() == [1.0, 2.0]
    table[0] = 5.0
    assert f(x).tolist() == [5.0, 2.0]


def test_type_and_requires_grad_of_outside_tensors_are_noticed() -> None:
    w = weft.ones(2)
    f = weft.compile(lambda x: x * w)
    x = weft.ones(2)
    assert not f(x).requires_grad
    w.requires_grad_()
    assert f(x).requires_grad


def test_hooks_on_leaves_are_noticed() -> None:
    w = weft.ones(1, requires_grad=True)

    @weft.compile
    def step(x: Any) -> None:
        w.zero_grad()
        (w * x).sum().backward()

    found = []
    step(weft.ones(1))
    found.append(w.grad.item())
    with w.register_hook(lambda g: g * 10.0):
        step(weft.ones(1))
        found.append(w.grad.item())
    step(weft.ones(1))
    assert [*found, w.grad.item()] == [1.0, 10.0, 1.0]


def test_function_that_is_replaced_is_noticed() -> None:
    def one(x: Any) -> Any:
        return x + 1.0

    def two(x: Any) -> Any:
        return x + 2.0

    chosen = {"f": one}
    f = weft.compile(lambda x: chosen["f"](x))
    assert f(weft.zeros(1)).item() == 1.0
    chosen["f"] = two
    assert f(weft.zeros(1)).item() == 2.0


def test_number_that_changes_at_each_call_and_is_a_key_is_an_error_that_names_the_line() -> None:
    class Counter:
        calls = 0
        rates: ClassVar = {0: 1.0, 1: 0.5, 2: 0.25}

        def __call__(self, x: Any) -> Any:
            rate = self.rates[self.calls]
            self.calls += 1
            return x * rate

    counter = Counter()
    function = weft.compile(counter)
    assert function(weft.ones(1)).item() == 1.0  # a first call may go its own way
    with pytest.raises(weft.errors.CaptureError) as error:
        function(weft.ones(1))
    text = str(error.value)
    assert "the attribute 'calls' of a Counter must stay the same from call to call, got 1, then 2" in text
    for part in ("self.calls += 1", "make it a tensor"):
        assert part in text
    assert counter.calls == 1


def test_flag_that_is_set_and_set_back_is_no_change() -> None:
    class Model:
        training = True

        def __call__(self, x: Any) -> Any:
            before = self.training
            self.training = False
            out = x * 2.0
            self.training = before
            return out

    model = Model()
    f = weft.compile(model)
    for _ in range(3):
        assert f(weft.ones(1)).item() == 2.0
    assert (len(f.versions), model.training) == (1, True)


def test_objects_made_inside_leave_no_guards() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a = a
            self.b = b

    @weft.compile
    def f(x: Any) -> Any:
        pair = Pair(x, 2.0)
        return pair.a * pair.b

    for k in range(3):
        assert f(weft.full((1,), float(k))).item() == 2.0 * k
    assert len(f.versions) == 1


class Counted:
    """As a module will be: every change of an attribute is counted for the whole class."""

    _weft_version = 0

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        Counted._weft_version += 1

    def __call__(self, x: Any) -> Any:
        return x * self.rate


def test_objects_that_count_changes_are_looked_at_only_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    begin = guards._Counted.__init__

    def counting(self: Any, owner: Any, check: Any) -> None:
        begin(self, owner, lambda a: looks.append(1) is None and check(a))

    monkeypatch.setattr(guards._Counted, "__init__", counting)
    model = Counted(2.0)
    f = weft.compile(model)
    x = weft.ones(1)
    f(x)
    before = len(looks)
    assert f(x).item() == 2.0
    assert len(looks) == before
    Counted(7.0)  # some other object changes: the guards are looked at, and hold
    assert f(x).item() == 2.0
    assert len(looks) > before
    assert len(f.versions) == 1
    model.rate = 3.0
    assert f(x).item() == 3.0


# The parts


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        ((1, (2.0, "a")), (1, (2.0, "a")), True),
        ((1, 0.0), (1, -0.0), False),
        (1 + 0j, 1 + 0j, True),
        (np.float32(1), np.float32(1), True),
        (np.float32(1), np.float64(1), False),
        ("a", "a", True),
        (object(), object(), False),
        ([1], [1], False),
    ],
)
def test_same_tells_values_apart_to_the_last_bit(a: Any, b: Any, alike: bool) -> None:
    assert same(a, b) is alike


def test_check_is_false_where_a_slot_is_gone() -> None:
    class Holder:
        pass

    holder, items, cell = Holder(), {"a": 1}, (lambda x: lambda: x)(3).__closure__[0]  # type: ignore[index]
    holder.value = 2.0  # type: ignore[attr-defined]
    guards = Guards()
    guards.add(AttrSlot(holder, "value"), 2.0)
    guards.add(ItemSlot(items, "a"), 1)
    guards.add(CellSlot(cell), 3)
    check = compile_check(guards, [])
    assert check(())
    del holder.value  # type: ignore[attr-defined]
    assert not check(())
    holder.value = 2.0  # type: ignore[attr-defined]
    assert check(())
    items.clear()
    assert not check(())


def test_check_of_a_typical_function_takes_few_microseconds() -> None:
    layers = [Layer() for _ in range(3)]

    @weft.compile
    def f(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x * SCALE

    x = weft.ones(2)
    f(x)
    (version,) = f.versions
    assert len(version.program.guards) >= 10

    def check() -> None:
        for _ in range(200):
            version.holds((x,))

    assert least_seconds(check, 200 * 20e-6) < 200 * 20e-6  # below 5 µs each: bench/capture.py


@pytest.mark.parametrize(
    "ask", [lambda m: hasattr(m, "extra"), lambda m: getattr(m, "extra", None) is not None]
)
@pytest.mark.parametrize("module", [math, weft])
def test_what_a_module_lacks_is_looked_for_at_each_call(
    module: Any, ask: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    @weft.compile(backend="interpret")
    def f(x: Any) -> Any:
        return x * 2 if ask(module) else x + 5

    assert [f(weft.tensor(3.0)).item() for _ in range(3)] == [8.0, 8.0, 8.0]
    assert len(f.versions) == 1
    monkeypatch.setattr(module, "extra", 1, raising=False)
    assert [f(weft.tensor(3.0)).item() for _ in range(2)] == [6.0, 6.0]
    monkeypatch.undo()
    assert f(weft.tensor(3.0)).item() == 8.0
    assert len(f.versions) == 2
