"""Modules of weft as modules of PyTorch, with the same parameters in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import weft
from weft import nn
from weft.base.trees import tree_flatten
from weft.interop.torch.functions import Call, leaf_of
from weft.interop.torch.tensors import from_torch, to_torch
from weft.tensor.tensor import Tensor


def torch_module(torch: Any, module: nn.Module) -> Any:
    """The ``torch.nn.Module`` of a module of weft."""
    return _wrapper(torch)(module)


@cache
def _wrapper(torch: Any) -> Any:
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
            theirs.data = to_torch(ours.detach())
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
