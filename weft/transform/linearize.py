"""``linearize``: the derivative of a function at one point, as a function of the direction alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.trees import tree_unflatten
from weft.tensor.autograd import seed_gradient
from weft.tensor.dispatch import filled_like
from weft.tensor.mode import enable_grad
from weft.transform.arguments import check_function, flatten_outputs
from weft.transform.jvp import check_tangents
from weft.transform.reverse import Tape, record


@public
def linearize(f: Callable[..., Any], *primals: object, has_aux: bool = False) -> Any:
    """The value of f, and the function from tangents of its arguments to tangents of its outputs.

    f runs once; the function can be called for many directions, each at the cost of a backward.

    >>> import weft
    >>> y, push = weft.linearize(lambda x: x * x, weft.tensor([1.0, 2.0]))
    >>> push(weft.tensor([1.0, 0.0])), push(weft.tensor([0.0, 1.0]))
    (tensor([2., 0.]), tensor([0., 4.]))
    """
    check_function("linearize", f)
    tape, _, out, aux = record("linearize", f, primals, has_aux=has_aux)
    outputs, out_structure = flatten_outputs("linearize", out)
    # A vjp is linear in the gradients it is given, so its own vjp, by these, is the jvp.
    smooth = [o for o in outputs if kind(o.dtype) in "fc"]
    transposed = Tape(
        "linearize", [seed_gradient("linearize", o, filled_like(o, 1)) for o in smooth], known=tape
    )
    with enable_grad():
        grads = tape.pull(smooth, transposed.aliases, again=True)

    def jvp_function(*tangents: object) -> Any:
        _, _, directions = check_tangents("linearize", primals, tangents)
        found = iter(transposed.pull(grads, directions, again=True))
        pushed = [next(found) if kind(o.dtype) in "fc" else filled_like(o, 0) for o in outputs]
        return tree_unflatten(out_structure, pushed)

    value = tree_unflatten(out_structure, [tape.settle(o) for o in outputs])
    return (value, jvp_function, aux) if has_aux else (value, jvp_function)
