"""Tests that need PyTorch or JAX run in environments of their own: ``make test-interop`` asks for them."""

import os

collect_ignore_glob = (
    [] if os.environ.get("WEFT_INTEROP") else ["torch/*", "jax/*", "test_documentation.py", "test_peers.py"]
)
