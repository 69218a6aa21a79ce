"""The row of servers: its client gets what the network computes."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from bench.workloads import served
from bench.workloads.training import load_weft
from weft import nn


@pytest.mark.rotating(2)
def test_the_client_gets_what_the_network_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUESTS", 40)
    arrays = served.digits_arrays(np.random.default_rng(0))
    run, process = served.start_weft(arrays, served.digits_network)
    try:
        found = run.step()
    finally:
        process.kill()
        process.communicate()
        run.step.__self__.close()  # type: ignore[attr-defined]
    model = load_weft(served.digits_network(nn), arrays).eval()
    np.testing.assert_allclose(found, model(weft.tensor(arrays["x"])).detach().numpy(), rtol=1e-4, atol=1e-6)
