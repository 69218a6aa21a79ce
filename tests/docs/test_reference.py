"""The reference has an entry for every public name, which says something, and facts that hold."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import weft
from docs_tools import reference
from docs_tools.docstrings import to_markdown
from docs_tools.facts import Facts, facts_of
from docs_tools.peers import called
from docs_tools.public import modules, names_of
from docs_tools.signatures import signature_of
from tests.stubs import public_names

ROOT = Path(weft.__file__).parent.parent


@cache
def pages() -> list[reference.Page]:
    """All of them, made in a process of their own: that runs examples, some of which change settings."""
    code = "import pickle, sys; from docs_tools import reference; found = pickle.dumps(reference.pages())"
    command = [sys.executable, "-W", "ignore", "-c", f"{code}; sys.stdout.buffer.write(b'pages:' + found)"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return pickle.loads(done.stdout.partition(b"pages:")[2])  # type: ignore[no-any-return]  # noqa: S301


@cache
def entries() -> dict[str, str]:
    return {entry.path: entry.text for page in pages() for entry in page.entries}


def test_every_public_name_has_an_entry() -> None:
    missing = []
    for module in modules():
        space = import_module(module)
        values = {name: getattr(space, name) for name in names_of(module)}
        missing += [
            f"{module}.{name}"
            for name, value in values.items()
            if not isinstance(value, ModuleType) and type(value).__name__ != "_Callable"
            if f"{module}.{name}" not in entries()
        ]
    assert missing == []


def test_names_of_weft_are_those_that_the_stubs_have() -> None:
    assert {*names_of("weft")} == {*public_names(), "__version__", "__array_api_version__"}


def test_no_name_stands_twice() -> None:
    paths = [entry.path for page in pages() for entry in page.entries]
    assert len(paths) == len(set(paths))


def test_no_entry_is_empty() -> None:
    bare = [path for path, text in entries().items() if not _body(text)]
    assert bare == []


def test_functions_and_classes_of_weft_have_their_example() -> None:
    without = []
    for name in names_of("weft"):
        text = entries().get(f"weft.{name}", ">>>")
        value = getattr(weft, name)
        if callable(value) and ">>>" not in text and "Another name of" not in text:
            without.append(name)
    assert without == []


def test_texts_are_those_of_weft_and_not_of_types_of_python() -> None:
    texts = [inspect.getdoc(kind) for kind in (int, str, float, bool, tuple, dict, list)]
    first = {str(text).splitlines()[0] for text in texts}
    assert [path for path, text in entries().items() if first & set(text.splitlines())] == []


def _body(text: str) -> str:
    """What an entry says besides its signature."""
    return re.sub(r"^:{4,}.*$", "", text, flags=re.M).strip()


def test_links_between_entries_lead_to_one() -> None:
    linked = {
        target for page in pages() for target in re.findall(r"\{py:obj\}`[^`<]+ <([\w.]+)>`", page.markdown())
    }
    assert len(linked) > 500
    assert linked - set(entries()) == set()


# Facts


def facts(name: str) -> Facts:
    found = facts_of(name, getattr(weft, name, None) or getattr(weft.linalg, name))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tanh", "yes: by x: `1 - out * out`"),
        ("mul", "yes: by x: `y`; by y: `x`"),
        ("sum", "yes: it is linear in its input, and its transpose gives the gradient"),
        ("argmax", "none: returns indices"),
        ("moveaxis", "yes, by the rules of `permute`"),
        ("isnan", "none: "),
    ],
)
def test_gradient_rules_are_told(name: str, text: str) -> None:
    assert facts(name).gradient.startswith(text)


@pytest.mark.parametrize("name", ["sin", "exp", "log1p", "atan", "square", "sigmoid"])
def test_told_derivatives_are_right(name: str) -> None:
    rule = re.fullmatch(r"yes: by x: `(.*)`", facts(name).gradient)
    assert rule is not None
    x, step = np.array([0.3, 1.2]), 1e-6
    function = getattr(weft, name)
    value = lambda x: function(weft.tensor(x, dtype=weft.float64)).numpy()  # noqa: E731
    space = {"x": x, "out": value(x), **{n: getattr(np, n) for n in ("cos", "exp", "reciprocal")}}
    slope = eval(rule[1], space)  # noqa: S307 - what the reference says, as an expression of NumPy
    np.testing.assert_allclose(slope, (value(x + step) - value(x - step)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("tanh", "`Tanh`"),
        ("gelu", "`Gelu`"),
        ("matmul", "`MatMul`"),
        ("cross_entropy", "`SoftmaxCrossEntropyLoss`"),
    ],
)
def test_operators_of_onnx_are_told(name: str, operators: str) -> None:
    assert facts(name).onnx == operators


def test_what_onnx_cannot_say_is_told_with_the_hint() -> None:
    assert facts("svd").onnx.startswith("no: ")


def test_where_functions_run_is_told() -> None:
    assert (facts("exp").cpu, facts("exp").gpu) == ("compiled", "kernels")
    assert facts("svd").gpu == "`svd` on the host, between copies"


def test_dtypes_are_those_that_a_function_takes() -> None:
    assert facts("bitwise_xor").dtypes == "bool, integers"
    assert facts("sin").dtypes == "bool, integers, half, floats, complex (integers become floats)"
    with pytest.raises(weft.errors.WeftError):
        weft.bitwise_xor(weft.ones(2), weft.ones(2))


def test_most_functions_of_tensors_have_facts() -> None:
    told = [text for path, text in entries().items() if path.startswith("weft.") and "| CPU |" in text]
    assert len(told) > 380


@pytest.mark.parametrize(
    ("module", "name", "torch", "jax"),
    [
        ("weft", "tanh", "torch.tanh", "jax.numpy.tanh"),
        ("weft", "permute_dims", "torch.permute", "jax.numpy.permute_dims"),
        ("weft", "scan", None, "jax.lax.scan"),
        ("weft", "svd", "torch.linalg.svd", "jax.numpy.linalg.svd"),
        ("weft", "load", "torch.load", None),
        ("weft", "compile", "torch.compile", None),
        ("weft.nn", "Linear", "torch.nn.Linear", None),
        ("weft.linalg", "svd", "torch.linalg.svd", "jax.numpy.linalg.svd"),
        ("weft.random", "split", None, "jax.random.split"),
    ],
)
def test_names_elsewhere_are_told(module: str, name: str, torch: str | None, jax: str | None) -> None:
    found = called(module, name)
    assert (found.get("PyTorch"), found.get("JAX")) == (torch, jax)


# How it is written


def test_signatures_are_as_people_write_them() -> None:
    def f(x: weft.Tensor, /, *rest: int, key: str = "a", **more: object) -> list[int]:
        return []

    assert signature_of(f) == "(x: Tensor, /, *rest: int, key: str = 'a', **more: object) -> list[int]"
    assert signature_of(f, method=True).startswith("(*rest: int")
    assert signature_of(weft.datasets.Digits) == "(images: Tensor, labels: Tensor)"
    assert signature_of(weft.nn.Identity) == "(*args: Any, **kwargs: Any)"


def test_methods_in_place_take_what_the_others_take() -> None:
    assert "weft.Tensor.clip_(min" in entries()["weft.Tensor.clip_"]
    assert "weft.Tensor.exp_() -> Tensor" in entries()["weft.Tensor.exp_"]


def test_docstrings_become_markdown() -> None:
    text = """Twice (N, *S).

    Args:
        x: a number,
            or two.
        *rest: others.

    Example::

        f(1)

    >>> 1 + 1
    2
    """
    assert to_markdown(text) == (
        "Twice (N, \\*S).\n\n- **x**: a number,\n  or two.\n- **\\*rest**: others.\n\n"
        "Example:\n\n```python\nf(1)\n```\n\n"
        "```python\n>>> 1 + 1\n2\n```"
    )
