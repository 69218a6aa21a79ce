"""Items at keys that only a run tells: each call finds what is there, whoever has put it there."""

from __future__ import annotations

import array
import operator
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import weft

Pair = namedtuple("Pair", "first second")


class Tripled(dict[Any, Any]):
    """A dict that makes up what it does not have."""

    def __missing__(self, key: Any) -> Any:
        return key * 3.0


class Box:
    """An object with items."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __getitem__(self, key: Any) -> Any:
        return self.held[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held[key] = value


def plain(x: Any) -> Any:
    """Something without tensors, to compare it."""
    if isinstance(x, weft.Tensor):
        return x.tolist()
    if isinstance(x, Box):
        return plain(x.held)
    if isinstance(x, dict | UserDict):
        return {k: plain(v) for k, v in x.items()}
    return [*map(plain, x)] if isinstance(x, list | tuple | bytearray | array.array | deque) else x


def agree(
    make: Callable[[], Any], use: Callable[[Any, Any], Any], change: Callable[[Any], Any], keys: Any = (0, 1)
) -> None:
    """Compiled code does what eager code does, before and after something outside changes, and again."""
    outcomes = []
    for wrap in (lambda f: f, weft.compile):
        held: Any = make()
        f: Any = wrap(lambda i, held=held: use(held, i))
        found: list[Any] = []
        for again in range(3):
            for key in keys:
                found += [plain(f(weft.tensor(key))), plain(held)]
            if again == 0:
                change(held)
        outcomes.append(found)
    assert outcomes[1] == outcomes[0]


def put(key: Any, value: Any) -> Callable[[Any], Any]:
    return lambda held: operator.setitem(held, key, value)


HELD = {
    "dict": lambda: {0: 1.0, 1: 2.0},
    "ordered": lambda: OrderedDict({0: 1.0, 1: 2.0}),
    "default": lambda: defaultdict(float, {0: 1.0, 1: 2.0}),
    "counter": lambda: Counter({0: 1, 1: 2}),
    "missing": lambda: Tripled({0: 1.0}),
    "user": lambda: UserDict({0: 1.0, 1: 2.0}),
    "chain": lambda: ChainMap({}, {0: 1.0, 1: 2.0}),
    "own": lambda: Box({0: 1.0, 1: 2.0}),
    "bytes": lambda: bytearray([1, 2]),
    "array": lambda: array.array("d", [1.0, 2.0]),
    "deque": lambda: deque([1.0, 2.0]),
    "list": lambda: [1.0, 2.0],
    "mixed": lambda: [1.0, 2],
    "one": lambda: [1.0],
    "tensors": lambda: {0: weft.tensor(1.0), 1: weft.tensor(2.0)},
}


@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
def test_an_item_that_somebody_replaces_is_the_new_one(make: Callable[[], Any]) -> None:
    keys = (0, 0) if isinstance(make(), list) and len(make()) == 1 else (0, 1)
    value = weft.tensor(5.0) if isinstance(make(), dict) and isinstance(make()[0], weft.Tensor) else 5
    agree(make, lambda held, i: held[int(i)] * 10, put(0, value), keys)


@pytest.mark.parametrize(
    "read",
    [
        lambda held, i: held[i.item()],
        lambda held, i: held[float(i)],
        lambda held, i: held[bool(i > 0)],
        lambda held, i: held[(i > 0).item()],
        lambda held, i: held.get(int(i)),
        lambda held, i: held.__getitem__(int(i)),
        lambda held, i: dict.__getitem__(held, int(i)),
        lambda held, i: operator.getitem(held, int(i)),
        lambda held, i: operator.itemgetter(int(i))(held),
        lambda held, i: sum(held[k] for k in (int(i), 1 - int(i))) + held[int(i)],
    ],
)
def test_all_ways_to_read_an_item_of_a_dict_are_guarded(read: Callable[[Any, Any], Any]) -> None:
    agree(lambda: {0: 1.0, 1: 2.0}, lambda held, i: read(held, i) * 10, put(0, 5.0))


def test_a_key_that_is_missing_is_noticed_when_it_comes() -> None:
    def read(held: Any, i: Any) -> Any:
        try:
            return held[int(i)]
        except KeyError:
            return "none"

    agree(lambda: {0: 1.0}, read, put(1, 5.0))
    agree(lambda: {0: 1.0}, lambda held, i: int(i) in held, put(1, 5.0))


def test_modules_and_functions_that_are_items_are_guarded() -> None:
    x = weft.tensor([-1.0, 2.0])
    kept = {0: weft.nn.ReLU(), 1: lambda x: x + 1.0}
    f = weft.compile(lambda i: kept[int(i)](x))
    assert f(weft.tensor(0)).tolist() == [0.0, 2.0]
    assert f(weft.tensor(1)).tolist() == [0.0, 3.0]
    kept[0], kept[1] = weft.nn.Identity(), lambda x: x * 3.0
    assert f(weft.tensor(0)).tolist() == [-1.0, 2.0]
    assert f(weft.tensor(1)).tolist() == [-3.0, 6.0]


def test_items_inside_of_items_are_guarded() -> None:
    agree(
        lambda: {0: {0: 1.0}, 1: {1: 2.0}},
        lambda held, i: held[int(i)][int(i)],
        lambda held: put(0, 5.0)(held[0]),
    )
    agree(lambda: {0: [1.0], 1: [2.0]}, lambda held, i: sum(held[int(i)]), lambda held: held[0].append(5.0))


def test_a_view_of_a_dict_shows_what_is_in_it() -> None:
    kept = {0: 1.0, 1: 2.0}
    view = types.MappingProxyType(kept)
    f = weft.compile(lambda i: view[int(i)] * 10)
    assert [f(weft.tensor(0)), f(weft.tensor(1))] == [10.0, 20.0]
    kept[0] = 5.0
    assert [f(weft.tensor(0)), f(weft.tensor(1))] == [50.0, 20.0]


@pytest.mark.parametrize("start", [1.0, 1, weft.tensor(1.0)], ids=["float", "int", "tensor"])
def test_changes_by_the_calls_themselves_are_seen_by_later_ones(start: Any) -> None:
    def make() -> Any:
        return {k: start * (k + 1) for k in range(3)}

    def double(held: Any, i: Any) -> Any:
        held[int(i)] = held[(int(i) + 1) % 3] * 2
        return held[int(i)]

    def add(held: Any, i: Any) -> Any:
        held[int(i)] += 1
        return held[int(i)] * 2

    change = lambda held: put(0, start * 7)(held)  # noqa: E731
    agree(make, double, change, keys=(0, 1))
    agree(make, add, change, keys=(0, 1))


def test_parts_of_a_key_that_only_a_run_tells_are_guarded() -> None:
    def add(held: Any, i: Any) -> Any:
        held[int(i), 1] = held[int(i), 1] * 2
        return held[int(i), 1]

    def make() -> Any:
        return {(0, 1): 1.0, (1, 1): 2.0}

    agree(make, lambda held, i: held[int(i), 1] * 10, put((0, 1), 5.0))
    agree(make, lambda held, i: held[Pair(int(i), 1)] * 10, put((0, 1), 5.0))
    agree(make, lambda held, i: held.get((int(i), 1)), put((0, 1), 5.0))
    agree(make, lambda held, i: (int(i), 1) in held, lambda held: held.pop((0, 1)))
    agree(make, add, put((0, 1), 5.0))


@pytest.mark.parametrize(
    "use",
    [
        lambda i: {int(i): i * 2, int(i) + 1: i},
        lambda i: {(int(i), 1): i * 2},
        lambda i: {int(i) + k: i * k for k in range(3)},
        lambda i: dict(zip([int(i)], [i * 2], strict=True)),
        lambda i: dict.fromkeys([int(i)], 3.0),
        lambda i: {float(i): 3.0},
        lambda i: Counter([int(i), int(i), 5])[1],
        lambda i: sorted({int(i), 5}),
        lambda i: len({int(i), 1} | {int(i) + 1}),
        lambda i: len(frozenset((int(i), 1))),
    ],
)
def test_dicts_and_sets_that_captured_code_makes_have_plain_keys(use: Callable[[Any], Any]) -> None:
    f = weft.compile(use)
    for k in (0, 1, 0):
        found = f(weft.tensor(k))
        assert plain(found) == plain(use(weft.tensor(k)))
        assert not isinstance(found, dict) or [type(x) for x in found] == [
            type(x) for x in use(weft.tensor(k))
        ]


def test_deleting_and_updating_at_a_key_that_only_a_run_tells() -> None:
    def without(held: Any, i: Any) -> Any:
        held = dict(held)
        del held[int(i)]
        return held

    agree(lambda: {0: 1.0, 1: 2.0}, without, put(0, 5.0))
    agree(lambda: {0: 1.0, 1: 2.0}, lambda held, i: held.update({int(i): 8.0}), put(0, 5.0))
    agree(lambda: {0: 1.0, 1: 2.0}, lambda held, i: dict(held).pop(int(i)), put(0, 5.0))
    agree(lambda: {0: 1.0, 1: 2.0}, lambda held, i: held.setdefault(int(i), 8.0), put(0, 5.0))


def test_a_loop_with_a_key_that_it_tells_is_run_by_python() -> None:
    kept = {0: 1.0, 1: 2.0, 3: 9.0}

    def f(x: Any) -> Any:
        while x.sum() < 10.0:
            x = x + kept[int(x.sum())]
        return x

    compiled = weft.compile(f)
    for value in (0.5, 1.5, 11.0, 0.5):
        assert compiled(weft.tensor([value])).tolist() == f(weft.tensor([value])).tolist()
    kept[3] = 8.0
    assert compiled(weft.tensor([0.5])).tolist() == f(weft.tensor([0.5])).tolist()
    message = r"needs the value of an int here[\s\S]*kept\[int\(x.sum\(\)\)\]"
    with pytest.raises(weft.errors.CaptureError, match=message):
        weft.make_graph(f)(weft.TensorType((1,), weft.float32))
