"""Runs the cases of one framework and prints what each does: a value or an error, and what was said."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Enter a case under the function's name."""
    CASES[function.__name__] = function
    return function


def run_all(framework: str, only: list[str]) -> None:
    """Run the cases and print one block for each."""
    for name, function in CASES.items():
        if only and name not in only:
            continue
        out = io.StringIO()
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out):
            warnings.simplefilter("always")
            try:
                result = f"gives {function()}"
            except Exception as error:
                first = str(error).strip().splitlines() or [""]
                result = f"raises {type(error).__name__}: {first[0][:160]}"
        took = time.perf_counter() - start
        print(f"{framework} {name}: {result}   [{took:.2f} s]")
        for w in caught[:2]:
            print(f"    warning: {str(w.message).splitlines()[0][:140]}")
        if out.getvalue():
            print(f"    printed: {out.getvalue().strip()[:200]!r}")
