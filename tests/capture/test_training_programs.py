"""Random training steps leave compiled what they leave eagerly: weights, gradients, state, settings, notes.

A few are refused, with the line; ``make test-state``, which every change passes, runs more of them.
"""

from __future__ import annotations

import pytest

from tests.capture.training_programs import check


@pytest.mark.rotating(8)
@pytest.mark.parametrize("first", range(1, 65, 8))
def test_training_steps_do_what_they_do_eagerly(first: int) -> None:
    outcomes = {seed: check(seed) for seed in range(first, first + 8)}
    kinds = {seed: outcome.partition(":")[0] for seed, outcome in outcomes.items()}
    assert {seed: outcomes[seed] for seed in outcomes if kinds[seed] not in ("same", "refused", "void")} == {}
    assert list(kinds.values()).count("same") >= 4
