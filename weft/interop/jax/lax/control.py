"""Lax primitives that run other jaxprs: branches, loops, calls."""

from __future__ import annotations

from typing import Any

import weft
from weft.interop.jax.calls import Call, lax


@lax("jit", "pjit", "closed_call", "core_call", "call", "remat2", "checkpoint", "remat", "xla_call")
def call_(call: Call, *xs: Any, **parameters: Any) -> Any:
    """A call: what it calls runs in its place."""
    jaxpr = parameters.get("jaxpr", parameters.get("call_jaxpr"))
    return call.run(jaxpr, xs)


@lax("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def custom_call(call: Call, *xs: Any, **parameters: Any) -> Any:
    """A function with a derivative of its own: the function runs, and weft differentiates it."""
    for name in ("call_jaxpr", "fun_jaxpr"):
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
    cond_consts, body_consts = xs[:cond_nconsts], xs[cond_nconsts : cond_nconsts + body_nconsts]
    carry = tuple(xs[cond_nconsts + body_nconsts :])
    out = weft.while_loop(
        lambda state: call.run(cond_jaxpr, [*cond_consts, *state])[0],
        lambda state: tuple(call.run(body_jaxpr, [*body_consts, *state])),
        carry,
    )
    return list(out)


@lax("scan")
def scan(
    call: Call,
    *xs: Any,
    jaxpr: Any,
    length: int,
    reverse: bool,
    num_consts: int,
    num_carry: int,
    **parameters: Any,
) -> Any:
    """A loop along the first axis of tensors."""
    consts, rest = xs[:num_consts], xs[num_consts:]

    def step(carry: Any, row: Any) -> Any:
        out = call.run(jaxpr, [*consts, *carry, *row])
        return tuple(out[:num_carry]), tuple(out[num_carry:])

    carry, ys = weft.scan(
        step, tuple(rest[:num_carry]), tuple(rest[num_carry:]), length=length, reverse=reverse
    )
    return [*carry, *ys]
