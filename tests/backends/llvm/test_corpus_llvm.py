"""The corpus of small programs as machine code that checks every index: the values of eager code.

A run takes half of the programs, the other half for another code of weft; ``WEFT_ALL=1`` takes all.
"""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.backends.agreement import same_bits
from tests.capture.test_corpus import PROGRAMS, arrays, assert_same, tensors
from tests.of_code import part_of


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", part_of(sorted(PROGRAMS), 2))
def test_program_gives_the_values_of_eager_code_and_stays_in_bounds(name: str) -> None:
    program = PROGRAMS[name]
    compiled = weft.compile(program.function, backend="llvm", debug=True)
    for run in program.inputs:
        found = arrays(compiled(*tensors(run)))
        assert_same(found, arrays(program.function(*tensors(run))))
        assert same_bits(_by_one_thread(compiled, run), found)


def _by_one_thread(compiled: Any, run: tuple[Any, ...]) -> list[Any]:
    before = weft.get_num_threads()
    weft.set_num_threads(1)
    try:
        return arrays(compiled(*tensors(run)))
    finally:
        weft.set_num_threads(before)
