"""Functions of weft that PyTorch differentiates: ``as_torch``.

A call runs in weft, whose tape is kept with the node of PyTorch's graph; backward runs weft's gradient. The
gradient itself is such a call too, so that it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import weft
from weft import nn
from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.trees import Structure, tree_flatten, tree_unflatten
from weft.errors import ArgumentError
from weft.interop.optional import need
from weft.interop.torch.tensors import from_torch, to_torch
from weft.tensor.tensor import Tensor


@public
def as_torch(function: Callable[..., Any]) -> Any:
    """A function of weft as one of PyTorch, with weft's gradient; a module as a ``torch.nn.Module``.

    Tensors in the arguments, in trees too, become tensors of weft that share their memory, and likewise for
    results. PyTorch's ``backward`` runs weft's, to any order. Anything else is passed as it is.

    Args:
        function: plain, or made by ``weft.compile``; or a ``weft.nn.Module``, whose parameters and buffers
            then are those of the module of PyTorch, with the same names and the same memory.

    Example::

        f = weft.interop.torch.as_torch(lambda x: weft.tanh(x).sum())
        x = torch.ones(2, requires_grad=True)
        f(x).backward()
    """
    torch = need("as_torch", "torch", "torch")
    if isinstance(function, nn.Module):
        return _module_of(torch)(function)
    if not callable(function):
        raise ArgumentError(
            "as_torch", f"must be given a function or a module, got {type(function).__name__}"
        )

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        call = Call(torch, function, leaves, structure)
        return call.apply([x for x in leaves if isinstance(x, torch.Tensor)])

    return wraps(function, updated=())(run) if hasattr(function, "__name__") else run


class Call:
    """One call of a function of weft on the leaves of a tree, some of which are tensors of PyTorch."""

    def __init__(
        self, torch: Any, function: Callable[..., Any], leaves: Sequence[Any], structure: Structure
    ) -> None:
        self.torch = torch
        self.function = function
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.leaves = [None if i in self.places else x for i, x in enumerate(leaves)]
        self.structure = structure
        self.returned: list[Any] = []
        self.returned_structure: Structure | None = None
        self.state = weft.get_rng_state()

    def apply(self, tensors: Sequence[Any]) -> Any:
        """What the function returns, in PyTorch's tensors, recorded by PyTorch."""
        outs = iter(bridge(self.torch).apply(self, *tensors))
        results = [next(outs) if isinstance(x, Tensor) else x for x in self.returned]
        assert self.returned_structure is not None
        return tree_unflatten(self.returned_structure, results)

    def run(self, tensors: Sequence[Any], needs: Sequence[bool]) -> tuple[list[Tensor], list[Tensor]]:
        """Run in weft: the tensors that gradients are asked for, and those that were returned."""
        given = [leaf_of(x, needed) for x, needed in zip(tensors, needs, strict=True)]
        return given, self.outputs(given, any(needs))

    def outputs(self, given: Sequence[Tensor], follow: bool) -> list[Tensor]:
        """The tensors that the function returns for these among its arguments."""
        leaves = list(self.leaves)
        for place, x in zip(self.places, given, strict=True):
            leaves[place] = x
        args, kwargs = tree_unflatten(self.structure, leaves)
        with weft.set_grad_enabled(follow):
            out = self.function(*args, **kwargs)
        self.returned, self.returned_structure = tree_flatten(out)
        return [x for x in self.returned if isinstance(x, Tensor)]


def leaf_of(x: Any, needed: bool) -> Tensor:
    """A tensor of PyTorch as a leaf of weft, which requires grad if a gradient is asked for."""
    return from_torch(x.detach()).requires_grad_(needed) if needed else from_torch(x.detach())


class Pulled:
    """The gradient of a call, as a call of its own: on the tensors of the call, then gradients of results."""

    def __init__(self, call: Any, needs: Sequence[bool]) -> None:
        self.call = call
        self.torch = call.torch
        self.needs = needs
        self.state = call.state
        self.count = len(needs)

    def run(self, tensors: Sequence[Any], needs: Sequence[bool]) -> tuple[list[Tensor], list[Tensor]]:
        """Run in weft."""
        grads = [
            leaf_of(x, needed) for x, needed in zip(tensors[self.count :], needs[self.count :], strict=True)
        ]
        with weft.fork_rng(self.state):
            leaves, outputs = self.call.run(tensors[: self.count], self.needs)
        with weft.enable_grad():
            found = _gradients(outputs, grads, leaves, self.needs, create_graph=any(needs))
        return [*leaves, *grads], found


def _gradients(
    outputs: Sequence[Tensor], grads: Sequence[Tensor], leaves: Sequence[Tensor], needs: Any, **options: Any
) -> list[Tensor]:
    """The gradients of the leaves that need one, by weft's tape; there is one for each smooth output."""
    smooth = [y for y in outputs if kind(y.dtype) in "fc"]
    followed = [(y, g) for y, g in zip(smooth, grads, strict=True) if y.requires_grad]
    wanted = [x for x, needed in zip(leaves, needs, strict=True) if needed]
    outs, given = [y for y, _ in followed], [g for _, g in followed]
    return list(weft.autograd.grad(outs, wanted, given, materialize_grads=True, **options))


@cache
def bridge(torch: Any) -> Any:
    """The ``torch.autograd.Function`` that runs calls of weft."""

    class Weft(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, call: Any, *tensors: Any) -> tuple[Any, ...]:
            needs = ctx.needs_input_grad[1:]
            ctx.call, ctx.needs = call, needs
            ctx.given, ctx.made = call.run(tensors, needs)
            outs = tuple(to_torch(y._value()) for y in ctx.made)
            ctx.mark_non_differentiable(
                *[t for t, y in zip(outs, ctx.made, strict=True) if not y.requires_grad]
            )
            ctx.save_for_backward(*tensors, *outs)  # PyTorch then notices changes in place
            return outs

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            tensors = ctx.saved_tensors[: len(ctx.needs)]
            smooth = [g for g, y in zip(grads, ctx.made, strict=True) if kind(y.dtype) in "fc"]
            if torch.is_grad_enabled():
                found = iter(Weft.apply(Pulled(ctx.call, ctx.needs), *tensors, *smooth))
            else:
                given = [from_torch(g) for g in smooth]
                own = _gradients(ctx.made, given, ctx.given, ctx.needs, retain_graph=True)
                found = iter([to_torch(g._value()) for g in own])
            return (None, *[next(found) if needed else None for needed in ctx.needs])

    return Weft


# Modules, with the same parameters in the same memory


@cache
def _module_of(torch: Any) -> Any:
    """The class of ``torch.nn.Module`` that modules of weft become."""

    class WeftModule(torch.nn.Module):  # type: ignore[misc]
        """A module of weft. Its parameters and buffers are those of this module; both may change them."""

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.__dict__["weft_module"] = module
            for path, parameter in module.named_parameters():
                held = torch.nn.Parameter(to_torch(parameter._value()), requires_grad=parameter.requires_grad)
                owner, name = _owner(torch, self, path)
                owner.register_parameter(name, held)
            for path, buffer in module.named_buffers():
                owner, name = _owner(torch, self, path)
                owner.register_buffer(name, to_torch(buffer._value()))
            self.__dict__["places"] = {path: x.data_ptr() for path, x in self._held().items()}
            super().train(module.training)

        def _held(self) -> dict[str, Any]:
            return {**dict(self.named_parameters()), **dict(self.named_buffers())}

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            module = self.weft_module
            parameters = dict(self.named_parameters())
            leaves, structure = tree_flatten((args, kwargs))
            _share(module, self._held(), self.places)
            call = _ModuleCall(torch, module, list(parameters), leaves, structure)
            inputs = [x for x in leaves if isinstance(x, torch.Tensor)]
            out = call.apply([*parameters.values(), *inputs])
            _share(module, self._held(), self.places)
            return out

        def train(self, mode: bool = True) -> Any:
            self.weft_module.train(mode)
            return super().train(mode)

        def extra_repr(self) -> str:
            return repr(self.weft_module)

    return WeftModule


def _owner(torch: Any, root: Any, path: str) -> tuple[Any, str]:
    """The module that holds what a path names, made where it is missing, and its name there."""
    *parts, name = path.split(".")
    for part in parts:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root._modules[part]
    return root, name


def _share(module: nn.Module, held: dict[str, Any], places: dict[str, int]) -> None:
    """Let both sides have one memory again, with the value of the side that has replaced its own since."""
    shared: list[tuple[str, Tensor]] = [*module.named_parameters(), *module.named_buffers()]
    for path, ours in shared:
        theirs = held[path]
        if ours._array("as_torch").__array_interface__["data"][0] == theirs.data_ptr():
            continue
        if theirs.data_ptr() == places[path]:
            theirs.data = to_torch(ours._value())
        else:
            with weft.no_grad():
                ours._rebind("as_torch", from_torch(theirs.detach()))
        places[path] = theirs.data_ptr()


class _ModuleCall(Call):
    """A call of a module: the parameters come first among the tensors."""

    def __init__(
        self, torch: Any, module: nn.Module, names: Sequence[str], leaves: Any, structure: Any
    ) -> None:
        super().__init__(torch, module, leaves, structure)
        self.module = module
        self.names = names

    def run(self, tensors: Sequence[Any], needs: Sequence[bool]) -> tuple[list[Tensor], list[Tensor]]:
        """Run in weft; gradients are asked for the parameters themselves."""
        count = len(self.names)
        own = dict(self.module.named_parameters())
        parameters = [own[name] for name in self.names]
        for parameter, needed in zip(parameters, needs[:count], strict=True):
            parameter.requires_grad_(needed)
        given = [leaf_of(x, needed) for x, needed in zip(tensors[count:], needs[count:], strict=True)]
        return [*parameters, *given], self.outputs(given, any(needs))
