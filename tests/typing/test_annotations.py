"""Annotations say something: the share that is just ``Any`` stays below a bound, which may only fall."""

from __future__ import annotations

import ast

import pytest

from tests.typing.annotations import annotation_texts, annotations_in, bare_any, is_bare

BOUNDS = {  # in percent
    "base": 20.0,
    "ir": 5.0,
    "ops": 3.0,
    "passes": 2.5,
    "tensor": 8.0,
    "transform": 7.0,
    "nn": 13.5,
    "optim": 10.0,
}


@pytest.mark.parametrize("package", BOUNDS)
def test_share_of_bare_any_is_below_its_bound(package: str) -> None:
    share = bare_any(package)
    assert share.percent <= BOUNDS[package], f"{share.bare} of {share.total} annotations are just Any"


def test_annotations_of_parameters_results_and_variables_are_found() -> None:
    source = "def f(a: Any, *b: int, c: str = '', **d: Any) -> Any:\n    e: list[Any] = []"
    assert sorted(annotation_texts(ast.parse(source))) == ["Any", "Any", "Any", "int", "list[Any]", "str"]
    assert sum(map(is_bare, annotations_in(ast.parse(source + "\ndef g(a: 'Any') -> None: ...")))) == 4
