"""Mistakes with graphs themselves: feeds, fetches, files, settings. Each error shows the line of the user."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    ArgumentError,
    CaptureError,
    DomainError,
    DtypeError,
    FileError,
    GraphError,
    ParseError,
    PipelineError,
    ShapeError,
    TraceGuardError,
    WeftError,
)

WEFT = str(Path(weft.__file__).parent)


class Things:
    """Graphs, functions and files to make mistakes with."""

    def __init__(self, folder: Path) -> None:
        w = weft.tensor([1.0, 2.0])
        with weft.Graph("f") as self.graph:
            self.x = weft.placeholder("x", ("batch", 2))
            self.y = self.x * w
        with weft.Graph("other"):
            self.foreign = weft.placeholder("q", (2,))
        self.session = weft.Session(self.graph)
        self.traced = weft.jit.trace(lambda x: x * 2.0 if x.sum() > 0 else -x, weft.ones(3))
        self.fresh = weft.compile(lambda x: x)
        self.stepper = self.graph.step({"x": [[1.0, 2.0]]})
        self.tree, self.damaged, self.model = folder / "tree", folder / "damaged", folder / "m.weft"
        weft.save({"a": weft.ones(3)}, self.tree)
        self.damaged.write_bytes(b"1234567890123")
        weft.compile(lambda x: x * 2.0).save(self.model, weft.ones(3))
        self.loaded = weft.load_graph(self.model)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    return Things(tmp_path_factory.mktemp("things"))


TRACE, BRANCHES = "trace: ", "x * 2.0 if x.sum() > 0"
Row = tuple[type[Exception], str, Callable[[Things], Any]]
MISTAKES: list[Row] = [
    (ShapeError, "feed: x (at test_static.py", lambda t: t.session.run(t.y, {t.x: [[1.0, 2.0, 3.0]]})),
    (ShapeError, "must be fed f32[batch,2], got shape (2,)", lambda t: t.session.run(t.y, {"x": [1.0, 2.0]})),
    (
        DtypeError,
        "must be fed float32, got int32",
        lambda t: t.session.run(t.y, {t.x: weft.ones((1, 2), dtype=weft.int32)}),
    ),
    (
        GraphError,
        "every placeholder that the fetches need must be fed, got none for x",
        lambda t: t.session.run(t.y),
    ),
    (
        GraphError,
        "fetches must be of graph f, got a tensor of graph other",
        lambda t: t.session.run(t.foreign, {}),
    ),
    (GraphError, "must be in the graph f, got nope", lambda t: t.session.run("nope", {"x": [[1.0, 2.0]]})),
    (GraphError, "must be in the graph f, got xx", lambda t: t.session.run(t.y, {"xx": 1.0})),
    (
        ArgumentError,
        "fetches must be tensors, values or names, got object",
        lambda t: t.session.run(object()),
    ),
    (ArgumentError, "Session: must be given a graph, got int", lambda t: weft.Session(3)),
    (
        DomainError,
        "check_nan must be True, False or \"all\", got 'some'",
        lambda t: weft.Session(t.graph, check_nan="some"),
    ),
    (
        CaptureError,
        "placeholder: must be called inside the block of a graph",
        lambda t: weft.placeholder("x"),
    ),
    (ArgumentError, "f: takes 1 arguments, got 3", lambda t: t.graph(1, 2, 3)),
    (ShapeError, "must be fed f32[batch,2], got shape (2, 3)", lambda t: t.graph(weft.ones((2, 3)))),
    (
        ParseError,
        "tanh: types must be f32[2], got f32[3]",
        lambda t: weft.parse_graph("graph f(%x: f32[2]) {\n %0: f32[3] = tanh(%x)\n return %0 }"),
    ),
    (ParseError, "parse_graph: ", lambda t: weft.parse_graph("graph f( {")),
    (DomainError, "backend: must be one of", lambda t: weft.compile(lambda x: x, backend="nope")),
    (
        DomainError,
        'capture must be "source" or "trace", got',
        lambda t: weft.compile(lambda x: x, capture="nope"),
    ),
    (
        DomainError,
        'check_nan must be True, False or "all", got 3',
        lambda t: weft.compile(lambda x: x, check_nan=3),
    ),
    (ArgumentError, "compile: ", lambda t: weft.compile(3)),
    (CaptureError, "has a graph from its first call on, got none yet", lambda t: t.fresh.graph),
    (TraceGuardError, "got x: f32[3] before, f32[4] now", lambda t: t.traced(weft.ones(4))),
    (TraceGuardError, TRACE, lambda t: t.traced(-weft.ones(3))),
    (FileError, "the file must hold a graph, got a tree", lambda t: weft.load_graph(t.tree)),
    (FileError, "damaged: ", lambda t: weft.load(t.damaged)),
    (FileNotFoundError, "nowhere", lambda t: weft.load(t.tree.parent / "nowhere")),
    (ShapeError, "x must be f32[3], got f32[4]", lambda t: t.loaded(weft.ones(4))),
    (GraphError, "must be in the graph f or a region that runs, got 'nope'", lambda t: t.stepper["nope"]),
    (GraphError, "must have been computed, got", lambda t: t.stepper["%1"]),
    (ArgumentError, "takes one of line=, node= and when=", lambda t: t.stepper.run_to()),
    (
        ShapeError,
        "the value must have the shape (1, 2), got (3,)",
        lambda t: t.stepper.set("x", weft.ones(3)),
    ),
    (
        ArgumentError,
        "must be given a compiled function or a backend, got 3",
        lambda t: t.fresh.diff(3, weft.ones(2)),
    ),
    (
        GraphError,
        "graphs must give as many results",
        lambda t: t.graph.diff(weft.parse_graph("graph f(%x: f32[1,2]) { return }"), {"x": [[1.0, 2.0]]}),
    ),
]


# Graphs that are changed and optimised
MISTAKES += [
    (GraphError, "must be in the graph f, got %9", lambda t: t.graph.extract("x", "%9")),
    (GraphError, "must be in the graph f, got %9", lambda t: t.graph.cut("%9")),
    (ArgumentError, "optimize: passes must be among", lambda t: t.graph.optimize(passes=["nope"])),
    (ArgumentError, "takes a graph, got int", lambda t: t.graph.optimize(passes=[lambda g: 3])),
    (ArgumentError, "the pattern must apply an op", lambda t: t.graph.rewrite(lambda x: x, lambda x: x)),
]


@pytest.mark.parametrize(("kind", "says", "call"), MISTAKES, ids=[row[1][:40] for row in MISTAKES])
def test_error_shows_the_line_of_the_user(
    kind: type[Exception], says: str, call: Any, things: Things
) -> None:
    with pytest.raises(kind) as caught:
        call(things)
    text = str(caught.value)
    assert type(caught.value) is kind
    assert says in text
    if isinstance(caught.value, WeftError):
        lines = [line for line in text.splitlines() if line.startswith("  at ")]
        marked = BRANCHES if says == TRACE else f":{call.__code__.co_firstlineno}: "
        assert lines[0].startswith("  at test_static.py:")
        assert marked in lines[0]
    shown = "".join(traceback.format_exception(caught.value))
    assert WEFT not in shown
    assert "<weft" not in shown


# What the traceback shows


def divide(x: Any) -> Any:
    y = x * 2.0
    return y + {}["missing"]


def test_error_of_the_user_in_captured_code_has_the_users_frames_alone() -> None:
    with pytest.raises(KeyError) as caught:
        weft.compile(divide)(weft.ones(2))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_error_of_the_user_in_captured_code_has_the_users_frames_alone", "divide"]


def test_cause_and_context_of_the_user_are_kept() -> None:
    def fail(x: Any) -> Any:
        try:
            return x + {}["missing"]
        except KeyError as error:
            raise ValueError("no such entry") from error

    with pytest.raises(ValueError, match="no such entry") as caught:
        weft.compile(fail)(weft.ones(2))
    assert isinstance(caught.value.__cause__, KeyError)


def test_errors_of_libraries_that_weft_turns_into_its_own_are_not_shown() -> None:
    with pytest.raises(ShapeError) as caught:
        weft.ones((2, 3)) @ weft.ones((2, 3))
    assert "During handling" not in "".join(traceback.format_exception(caught.value))


def test_context_is_shown_where_the_user_handled_an_error() -> None:
    with pytest.raises(ShapeError) as caught:
        try:
            raise KeyError("of the user")
        except KeyError:
            weft.ones((2, 3)) @ weft.ones((2, 3))
    assert "of the user" in "".join(traceback.format_exception(caught.value))


@pytest.fixture
def full_tracebacks() -> Iterator[None]:
    before = weft.set_full_tracebacks(True)
    yield
    weft.set_full_tracebacks(before)


def test_setting_shows_the_frames_of_weft(full_tracebacks: None) -> None:
    with pytest.raises(KeyError) as caught:
        weft.compile(divide)(weft.ones(2))
    assert WEFT in "".join(traceback.format_exception(caught.value))


PROGRAM = """
import weft
def f(x, y):
    return x @ y
weft.compile(f)(weft.ones(3), weft.ones(4))
"""


@pytest.mark.parametrize(("setting", "shown"), [("0", False), ("1", True)])
def test_environment_variable_is_the_same_setting(setting: str, shown: bool, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = {"WEFT_FULL_TRACEBACKS": setting, "PYTHONPATH": str(Path(WEFT).parent)}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment)
    assert "matmul: inner dimensions must agree" in done.stderr
    assert "where x is f32[3] and y is f32[4]" in done.stderr
    assert (WEFT in done.stderr) is shown


def spoil(x: Any) -> Any:
    return weft.tensor(x) @ weft.ones(5)  # spoil


@pytest.mark.parametrize("ahead", [{}, {"workers": 1}], ids=["in step", "ahead"])
def test_function_of_a_data_pipeline_is_named_with_its_line(ahead: dict[str, int]) -> None:
    pipeline = weft.data.from_arrays(np.ones((2, 3), np.float32)).map(spoil)
    with pytest.raises(PipelineError, match=r"return weft.tensor\(x\) @ weft.ones\(5\)  # spoil") as caught:
        list(pipeline.prefetch(1, **ahead) if ahead else pipeline)
    assert isinstance(caught.value.__cause__, ShapeError)
    assert WEFT not in "".join(traceback.format_exception(caught.value))


def test_error_in_a_model_that_is_trained_names_its_line_and_parameters() -> None:
    class Model(weft.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = weft.nn.Parameter(weft.ones((4, 3)))

        def forward(self, x: Any) -> Any:
            return x @ self.w  # wrong

    model, x = Model(), np.ones((2, 3), np.float32)
    pipeline = weft.data.from_arrays(x, x).batch(2)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    trainer = weft.Trainer(model, weft.nn.MSELoss(), optimizer, pipeline, progress=False)
    with pytest.raises(ShapeError, match=r"where x is f32\[2,3\] and self.w is f32\[4,3\]") as caught:
        trainer.fit(1)
    assert "return x @ self.w  # wrong" in str(caught.value)
    assert WEFT not in "".join(traceback.format_exception(caught.value))


# Names


def test_error_that_is_pickled_keeps_names_line_and_path() -> None:
    left, right = weft.ones(3), weft.ones(4)
    with pytest.raises(ShapeError) as caught:
        left + right
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(again) == str(caught.value)
    assert "where left is f32[3] and right is f32[4]" in str(again)
    with pytest.raises(DomainError) as caught:  # type: ignore[assignment]
        weft.compile(lambda x: weft.log(x), check_nan=True)(-left)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


def test_expression_over_several_lines_is_read_as_a_whole() -> None:
    first, second = weft.ones(3), weft.ones(4)
    with pytest.raises(ShapeError, match=r"where first is .* and second is") as caught:
        weft.add(
            first,
            second,
        )
    assert "weft.add(" in str(caught.value)


def test_properties_of_the_user_are_not_run_to_find_names() -> None:
    class Holder:
        runs = 0

        @property
        def weight(self) -> Any:
            self.runs += 1
            return weft.ones(4)

    holder, x = Holder(), weft.ones(3)
    with pytest.raises(ShapeError) as caught:
        x + holder.weight
    assert "where x is f32[3]\n" in f"{caught.value}\n"
    assert holder.runs == 1


def test_items_of_lists_and_dicts_are_named() -> None:
    layers, table = [weft.ones(3)], {"a": weft.ones(4)}
    with pytest.raises(ShapeError, match=r"where layers\[0\] is f32\[3\] and table\['a'\] is f32\[4\]"):
        layers[0] + table["a"]


def test_code_without_source_has_no_names_and_no_trouble() -> None:
    space: dict[str, Any] = {"x": weft.ones(3), "y": weft.ones(4)}
    with pytest.raises(ShapeError) as caught:
        exec(compile("x + y", "<made up>", "exec"), space)  # noqa: S102
    assert "where" not in str(caught.value)


def test_every_class_of_error_is_in_the_tree_that_is_drawn() -> None:
    kinds = [k for _, k in inspect.getmembers(weft.errors, inspect.isclass) if issubclass(k, WeftError)]
    assert [k.__name__ for k in kinds if k.__name__ not in (weft.errors.__doc__ or "")] == []


def test_guard_that_fails_is_not_explained_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    naming = sys.modules["weft.ir.naming"]
    original = naming.Names  # type: ignore[attr-defined]
    monkeypatch.setattr(naming, "Names", lambda graph: asked.append(graph) or original(graph))
    f = weft.compile(lambda x: x * 2.0 if x.sum() > 0 else -x, capture="trace")
    for sign in (1.0, -1.0, 1.0, -1.0):
        f(sign * weft.ones(2))
    assert asked == []
