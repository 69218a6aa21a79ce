"""Names that the reference says PyTorch and JAX have: they do."""

from __future__ import annotations

import pytest

from docs_tools.peers import resolved, table


@pytest.mark.parametrize(
    ("peer", "module"), [(peer, module) for peer, modules in table().items() for module in modules]
)
def test_names_are_there(peer: str, module: str) -> None:
    space = resolved(module)
    assert [name for name in sorted(table()[peer][module]) if not hasattr(space, name)] == []
