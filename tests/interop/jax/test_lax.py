"""Every lax primitive, by itself: what JAX computes and what its graph gives, on every backend."""

from __future__ import annotations

import jax
import jax.extend.core.primitives as primitives
import pytest

import weft
from tests.interop.jax.samples import ELSEWHERE, SAMPLES, UNCERTAIN, X
from tests.interop.jax.tools import check_function
from weft.interop.jax import import_function, supported_primitives

CASES = [
    pytest.param(f, xs, id=f"{name}-{i}")
    for name, samples in SAMPLES.items()
    for i, (f, xs) in enumerate(samples)
]


@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_primitive_gives_what_jax_gives(function, inputs) -> None:
    check_function(function, *inputs)


@pytest.mark.parametrize("name", UNCERTAIN)
def test_primitive_without_fixed_values_gives_the_types_that_jax_gives(name) -> None:
    function, inputs = UNCERTAIN[name]
    check_function(function, *inputs, same=False)


def lax_primitives() -> set[str]:
    """The primitives that JAX makes public."""
    return {p.name for p in vars(primitives).values() if isinstance(p, jax.extend.core.Primitive)}


def test_nearly_all_public_primitives_are_covered() -> None:
    wanted = lax_primitives() - ELSEWHERE
    missing = wanted - set(supported_primitives())
    assert missing == MISSING
    assert len(wanted - missing) / len(wanted) > 0.85


MISSING = {
    "custom_lin",
    "hessenberg",
    "householder_product",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "random_gamma",
    "regularized_incomplete_beta",
    "rng_bit_generator",
    "schur",
    "select_and_scatter",
    "tridiagonal",
    "zeta",
}


def test_unknown_primitive_is_named_with_its_line() -> None:
    with pytest.raises(
        weft.errors.CaptureError, match="the primitive must be one weft knows, got igamma"
    ) as caught:
        import_function(lambda x: jax.scipy.special.gammainc(x, x), X)
    assert "at test_lax.py" in str(caught.value)
