"""Lax primitives that run other jaxprs: branches, loops, calls."""

from __future__ import annotations

from typing import Any

import weft
from weft.interop.forms.loops import repeated, scanned
from weft.interop.jax.calls import Call, lax

_CALLS = "jit pjit closed_call core_call call remat2 checkpoint remat xla_call"
_CUSTOM = "custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr"  # which weft differentiates by itself


@lax(*_CALLS.split(), *_CUSTOM.split())
def call_(call: Call, *xs: Any, **parameters: Any) -> Any:
    """A call: what it calls runs in its place."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in parameters:
            return call.run(parameters[name], xs)
    raise call.error("must hold its jaxpr, got none")


@lax("custom_linear_solve")
def custom_linear_solve(call: Call, *xs: Any, const_lengths: Any, jaxprs: Any) -> Any:
    """The solution of linear equations, as the function that solves them gives it."""
    start = const_lengths.matvec + const_lengths.vecmat
    consts = xs[start : start + const_lengths.solve]
    right = xs[start + const_lengths.solve + const_lengths.transpose_solve :]
    return call.run(jaxprs.solve, [*consts, *right])


@lax("cond")
def cond(call: Call, index: Any, *xs: Any, branches: Any, **parameters: Any) -> Any:
    """One of several branches."""
    functions = [lambda *given, b=b: tuple(call.run(b, given)) for b in branches]
    if len(functions) == 2:
        return list(weft.cond(weft.not_equal(index, 0), functions[1], functions[0], *xs))
    return list(weft.switch(index, functions, *xs))


@lax("while")
def while_(
    call: Call, *xs: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> Any:
    """A loop that goes on while a test holds."""
    both = cond_nconsts + body_nconsts
    return repeated(
        lambda state: call.run(cond_jaxpr, [*xs[:cond_nconsts], *state]),
        lambda state: call.run(body_jaxpr, [*xs[cond_nconsts:both], *state]),
        xs[both:],
    )


@lax("scan")
def scan(call: Call, *xs: Any, jaxpr: Any, num_consts: int, num_carry: int, **parameters: Any) -> Any:
    """A loop along the first axis of tensors."""
    consts, carry, rows = xs[:num_consts], xs[num_consts:][:num_carry], xs[num_consts + num_carry :]
    order = {name: parameters[name] for name in ("length", "reverse")}
    return scanned(lambda given: call.run(jaxpr, [*consts, *given]), carry, rows, **order)
