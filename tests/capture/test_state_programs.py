"""Random programs about state leave compiled what they leave eagerly: values, arguments, what is outside.

A few are refused, with the line; ``make test-state``, which every change passes, counts them among many more.
"""

from __future__ import annotations

import pytest

from tests.capture.state_programs import check


@pytest.mark.rotating(8)
@pytest.mark.parametrize("first", range(1, 41, 5))
def test_state_programs_do_what_they_do_eagerly(first: int) -> None:
    outcomes = {seed: check(seed) for seed in range(first, first + 5)}
    refused = {seed for seed, outcome in outcomes.items() if outcome.startswith("refused: ")}
    assert {seed: outcomes[seed] for seed in outcomes.keys() - refused if outcomes[seed] != "same"} == {}
    assert len(refused) <= 3
