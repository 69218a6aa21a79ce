"""What share of the annotations of a package says nothing: ``python -m tests.typing.annotations``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "weft"


class Share(NamedTuple):
    bare: int
    total: int

    @property
    def percent(self) -> float:
        return 100 * self.bare / max(self.total, 1)


def annotations_in(tree: ast.AST) -> Iterator[ast.expr]:
    """Each annotation of a parameter, a result or a variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found = node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = node.returns
        else:
            continue
        if found is not None:
            yield found


def annotation_texts(tree: ast.AST) -> Iterator[str]:
    """The text of each annotation."""
    return (ast.unparse(found).strip("'") for found in annotations_in(tree))


def is_bare(annotation: ast.expr) -> bool:
    """Whether it is just ``Any``."""
    named = isinstance(annotation, ast.Name) and annotation.id == "Any"
    return named or (isinstance(annotation, ast.Constant) and annotation.value == "Any")


def packages() -> list[str]:
    """Those directly in weft, and the modules there."""
    return sorted(
        {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py", ".pyi")} - {"__pycache__"}
    )


def bare_any(name: str) -> Share:
    """Of a package or module directly in weft, its annotations that are just ``Any``, and all."""
    bare = total = 0
    inside = (PACKAGE / name).rglob("*")
    for path in (PACKAGE / f"{name}.py", PACKAGE / f"{name}.pyi", *inside):
        if path.suffix in (".py", ".pyi") and path.is_file():
            for annotation in annotations_in(ast.parse(path.read_text())):
                total += 1
                bare += is_bare(annotation)
    return Share(bare, total)


if __name__ == "__main__":
    for name, share in ((name, bare_any(name)) for name in packages()):
        print(f"{name:12} {share.bare:5} of {share.total:5}  {share.percent:5.1f} %")  # noqa: T201
