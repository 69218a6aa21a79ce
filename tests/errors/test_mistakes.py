"""Mistakes in code that becomes a graph: errors say what must hold, and name the tensors and the line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.errors.mistakes import TYPES, Mistake
from tests.errors.mistakes_of_values import CAPTURE, VALUES

WEFT = str(Path(weft.__file__).parent)


def in_graph(m: Mistake) -> None:
    """Write a graph with the mistake by hand, with placeholders of the types of the arguments."""
    with weft.Graph("g"):
        m.function(*[weft.placeholder(f"a{i}", a.shape, a.dtype) for i, a in enumerate(m.args)])


def in_session(m: Mistake) -> None:
    """Run a graph whose values make the mistake."""
    graph = weft.make_graph(m.function)(*m.args)
    names = [v.name for v, role in zip(graph.inputs, graph.roles, strict=True) if role == "arg"]
    given = {name: x for name, x in zip("xi", m.args, strict=True) if name in names}
    weft.Session(graph).run(graph.outputs, given, effects=True)


def by_steps(m: Mistake) -> None:
    """Run such a graph node by node."""
    graph = weft.make_graph(m.function)(*m.args)
    names = [v.name for v in graph.inputs]
    run = graph.step({name: x for name, x in zip("xi", m.args, strict=True) if name in names})
    while not run.ended:
        run.step()


def from_file(m: Mistake, path: Path) -> None:
    """Run such a graph from a file."""
    weft.compile(m.function).save(path, *m.args)
    weft.load_graph(path)(*m.args)


Way = Callable[[Mistake], Any]
EAGER: Way = lambda m: m.function(*m.args)  # noqa: E731
SOURCE: Way = lambda m: weft.make_graph(m.function)(*m.args)  # noqa: E731
TRACE: Way = lambda m: weft.jit.trace(m.function, *m.args)  # noqa: E731
COMPILE: Way = lambda m: weft.compile(m.function)(*m.args)  # noqa: E731
INTERPRET: Way = lambda m: weft.compile(m.function, backend="interpret")(*m.args)  # noqa: E731

WAYS: dict[str, dict[str, Way]] = {
    "types": {"eager": EAGER, "source": SOURCE, "trace": TRACE, "compile": COMPILE, "graph": in_graph},
    "values": {
        "eager": EAGER,
        "llvm": COMPILE,
        "interpret": INTERPRET,
        "session": in_session,
        "steps": by_steps,
    },
    "capture": {"source": SOURCE},
}
CASES = [
    pytest.param(m, way, id=f"{m.function.__name__}-{name}")
    for table, kind in ((TYPES, "types"), (VALUES, "values"), (CAPTURE, "capture"))
    for m in table
    for name, way in WAYS[kind].items()
    if m.skips != name
]


def wrong_line(function: Callable[..., Any]) -> tuple[str, str]:
    """The line that is marked in a function, or in the one that it calls, and its text."""
    file = Path(function.__code__.co_filename)
    lines = file.read_text().splitlines()
    first = function.__code__.co_firstlineno - 1
    number = next(i for i in range(first, len(lines)) if lines[i].endswith("# here"))
    return f"{file.name}:{number + 1}", lines[number].strip()


def check_error(error: BaseException, m: Mistake) -> None:
    text = str(error)
    first, second, *rest = text.splitlines()
    place, source = wrong_line(m.function)
    assert isinstance(error, m.error)
    assert m.says in first
    assert second == f"  at {place}: {source}"
    named = "".join(line for line in rest if line.startswith("  where "))
    assert [name for name in m.names if name not in named] == []
    hints = "".join(line for line in rest if line.startswith("  hint: "))
    assert m.hint in hints


def weft_frames(error: BaseException) -> list[str]:
    shown = "".join(traceback.format_exception(error))
    return [line for line in shown.splitlines() if WEFT in line or "<weft" in line]


def test_there_are_at_least_sixty() -> None:
    assert len({m.function for m in (*TYPES, *VALUES, *CAPTURE)}) >= 60


@pytest.mark.parametrize(("m", "way"), CASES)
def test_error_says_what_must_hold_and_names_tensors_and_line(m: Mistake, way: Way) -> None:
    with pytest.raises(m.error) as caught:
        way(m)
    check_error(caught.value, m)
    if way is not EAGER:
        assert weft_frames(caught.value) == []


@pytest.mark.parametrize("m", [m for m in VALUES if m.names], ids=lambda m: m.function.__name__)
def test_error_of_a_loaded_graph_names_the_line_it_was_saved_from(m: Mistake, tmp_path: Path) -> None:
    with pytest.raises(m.error) as caught:
        from_file(m, tmp_path / "m.weft")
    check_error(caught.value, m)
    assert weft_frames(caught.value) == []
