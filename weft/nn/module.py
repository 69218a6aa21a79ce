"""Modules: objects with parameters, buffers and modules inside, called like functions.

What a module holds is found in its attributes; lists of names beside them say which are parameters, buffers
and modules. What ``state_dict`` and ``load_state_dict`` do is in ``weft.nn.state``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Self

import weft
from weft.capture.modules import call_forward, is_capturing, module_scope, read_attribute
from weft.errors import ArgumentError
from weft.nn.hooks import NO_HOOKS, Hook, HookHandle, add_hook
from weft.nn.parameter import Parameter, mark


class Module:
    """Base of everything that has parameters. Define ``forward``, and call the object.

    >>> import weft
    >>> from weft import nn
    >>> class Shift(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.by = nn.Parameter(weft.ones(2))
    ...     def forward(self, x):
    ...         return x + self.by
    >>> shift = Shift()
    >>> shift(weft.zeros(2))
    tensor([1., 1.], grad_fn=<AddBackward>)
    >>> [name for name, _ in shift.named_parameters()]
    ['by']

    Attributes:
        training: whether it trains, which changes what dropout and batch normalisation do.
    """

    _weft_version = 0  # counts changes of attributes of all modules, so that guards on them can be skipped
    training: bool
    _parameter_names: dict[str, bool]
    _buffer_names: dict[str, bool]  # with whether each is part of the state
    _module_names: dict[str, bool]
    _forward_hooks: dict[int, Hook]  # replaced, never changed, so that a capture notices
    _forward_pre_hooks: dict[int, Hook]
    _parent: tuple[weakref.ref[Module], str] | None  # the module that holds it, and the name it has there

    def __init__(self) -> None:
        own = self.__dict__
        own["training"] = True
        own["_parameter_names"] = {}
        own["_buffer_names"] = {}
        own["_module_names"] = {}
        own["_forward_hooks"] = NO_HOOKS
        own["_forward_pre_hooks"] = NO_HOOKS
        own["_parent"] = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What a call computes; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``, and the hooks around it."""
        if is_capturing():
            with module_scope(self._path()):
                return self._call_around(args, kwargs, call_forward)
        if self._forward_hooks or self._forward_pre_hooks:
            return self._call_around(args, kwargs, _plain_call)
        return self.forward(*args, **kwargs)

    def _call_around(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        for hook in read_attribute(self, "_forward_pre_hooks").values():
            found = hook(self, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
        out = call(self.forward, *args, **kwargs)
        for hook in read_attribute(self, "_forward_hooks").values():
            found = hook(self, args, out)
            out = out if found is None else found
        return out

    # Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_parameter_names" not in own:
            hint = "call super().__init__() first"
            raise ArgumentError(type(self).__name__, f"must be set up before {name!r} is set", hint=hint)
        if own.get(name, own) is value:
            return
        if isinstance(value, Parameter):
            self._enlist("_parameter_names", name)
        elif isinstance(value, Module):
            self._enlist("_module_names", name)
            value.__dict__["_parent"] = (weakref.ref(self), name)
        elif name in own["_parameter_names"] or name in own["_module_names"]:
            if value is not None:
                kind = "parameter" if name in own["_parameter_names"] else "module"
                hint = f"delete it first with `del`, or wrap the value in nn.{kind.capitalize()}"
                got = type(value).__name__
                raise ArgumentError(
                    type(self).__name__, f"{name} must stay a {kind} or None, got {got}", hint=hint
                )
        elif name in own["_buffer_names"] and value is not None and not weft.is_tensor(value):
            got = type(value).__name__
            raise ArgumentError(type(self).__name__, f"{name} must stay a buffer or None, got {got}")
        Module._weft_version += 1
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._strike(name)
        Module._weft_version += 1
        object.__delattr__(self, name)

    def _enlist(self, names: str, name: str, value: Any = True) -> None:
        """Enter a name into one of the lists, and take it off the others."""
        if not name or "." in name:
            raise ArgumentError(type(self).__name__, f"names must not be empty or have a dot, got {name!r}")
        self._strike(name, but=names)
        if self.__dict__[names].get(name) != value:
            self.__dict__[names] = {**self.__dict__[names], name: value}
            Module._weft_version += 1

    def _strike(self, name: str, but: str = "") -> None:
        """Take a name off the lists, which are replaced and never changed, so that a capture notices."""
        for names in ("_parameter_names", "_buffer_names", "_module_names"):
            listed = self.__dict__[names]
            if names != but and name in listed:
                self.__dict__[names] = {k: v for k, v in listed.items() if k != name}

    def register_parameter(self, name: str, param: Any) -> None:
        """Set a parameter, or None: then the module could have one, and has none."""
        if param is None:
            self._enlist("_parameter_names", name)
        elif not isinstance(param, Parameter):
            raise ArgumentError(
                "register_parameter", f"must be a Parameter or None, got {type(param).__name__}"
            )
        setattr(self, name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Set a tensor that is state but is not learned, such as a running mean.

        Args:
            name: of the attribute.
            tensor: or None.
            persistent: whether ``state_dict`` has it.
        """
        if tensor is not None and not weft.is_tensor(tensor):
            raise ArgumentError("register_buffer", f"must be a tensor or None, got {type(tensor).__name__}")
        self._enlist("_buffer_names", name, persistent)
        setattr(self, name, tensor)

    def register_module(self, name: str, module: Module | None) -> None:
        """Set a module under a name; the same as setting an attribute."""
        if module is None:
            self._enlist("_module_names", name)
        setattr(self, name, module)

    add_module = register_module

    # What it holds

    def _members(self, names: str) -> Iterator[tuple[str, Any]]:
        """What it holds of a kind, by name; a capture relies on it."""
        own = self.__dict__
        if not is_capturing():
            return ((name, own[name]) for name in own[names] if own[name] is not None)
        found = [(name, read_attribute(self, name)) for name in read_attribute(self, names)]
        return ((name, value) for name, value in found if value is not None)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, each once, with their names."""
        seen = set()
        for name, module in self._members("_module_names"):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly inside, each once."""
        return (module for _, module in self.named_children())

    def named_modules(self, memo: set[int] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all inside, each once, with paths such as ``layers.0.norm``."""
        seen = set() if memo is None else memo
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, module in self._members("_module_names"):
            yield from module.named_modules(seen, _joined(prefix, name))

    def modules(self) -> Iterator[Module]:
        """This module and all inside, each once."""
        return (module for _, module in self.named_modules())

    def _named(self, names: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in module._members(names):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield _joined(path, name), tensor

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Any]]:
        """All parameters, each once, with paths such as ``layers.0.weight``."""
        return self._named("_parameter_names", prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """All parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Any]]:
        """All buffers, each once, with paths."""
        return self._named("_buffer_names", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """All buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module with a path such as ``layers.0``; "" is this one."""
        found = dict(self.named_modules()).get(target)
        if found is None:
            raise ArgumentError("get_submodule", f"must be a path in {type(self).__name__}, got {target!r}")
        return found

    # What it does to all it holds

    def train(self, mode: bool = True) -> Self:
        """Set ``training`` of this module and all inside; returns the module."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """The same as ``train(False)``."""
        return self.train(False)

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with each module inside, then with this one; returns it."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for gradients of all parameters, or freeze them; returns the module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zeros."""
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = weft.zeros_like(p)

    def register_forward_pre_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns replaces the arguments."""
        return add_hook(self, "_forward_pre_hooks", hook)

    def register_forward_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns replaces the output."""
        return add_hook(self, "_forward_hooks", hook)

    # State

    def state_dict(self) -> dict[str, Any]:
        """The values of all parameters and persistent buffers, by their paths."""
        from weft.nn.state import state_dict

        return state_dict(self)

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> Any:
        """Give parameters and buffers the values of a ``state_dict``.

        Args:
            state_dict: from paths to tensors or arrays.
            strict: raise if a path is missing or unknown.

        Returns:
            The paths that are missing and those that are unknown.
        """
        from weft.nn.state import load_state_dict

        return load_state_dict(self, state_dict, strict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parent": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for _, tensor in self._members("_parameter_names"):
            mark(tensor)
        for name, module in self._members("_module_names"):
            module.__dict__["_parent"] = (weakref.ref(self), name)

    # Names and text

    def _path(self) -> str:
        """The way to this module from the outermost one that holds it, such as ``encoder.layers.3``."""
        names: list[str] = []
        at: Any = self
        while at is not None and (parent := at.__dict__["_parent"]) is not None:
            names.append(parent[1])
            at = parent[0]()
        return ".".join(reversed(names))

    def extra_repr(self) -> str:
        """What the text of the module says of its own settings."""
        return ""

    def __repr__(self) -> str:
        inside = [f"({name}): {_indented(repr(module))}" for name, module in self._members("_module_names")]
        own = self.extra_repr()
        if not inside:
            return f"{type(self).__name__}({own})"
        lines = [*([own] if own else []), *inside]
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _plain_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
