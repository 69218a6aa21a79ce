from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.cuda.standin import StandIn, standing_in


@pytest.fixture
def api() -> Iterator[StandIn]:
    """A driver without a card; ops without kernels may go through the host without a word."""
    with standing_in() as found:
        yield found
