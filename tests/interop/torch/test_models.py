"""Whole models: exported, imported, and run by weft on every backend, with the batch left open."""

from __future__ import annotations

import pytest

from tests.interop.torch.models import CASES
from tests.interop.torch.tools import check_module


@pytest.mark.parametrize("name", CASES)
def test_model_gives_what_pytorch_gives(name) -> None:
    model, inputs, others, dynamic = CASES[name]()
    graph = check_module(model, inputs, dynamic, others)
    if dynamic is not None:
        assert "batch" in str(graph.inputs[0].type)
