"""Modules: objects with parameters, buffers and modules inside, called like functions.

What a module holds is found in its attributes; lists of names beside them say which are parameters, buffers
and modules. Hooks are in ``weft.nn.hooks``, modes in ``weft.nn.modes``, states in ``weft.nn.state``, text in
``weft.nn.text``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.base.elsewhere import Missing
from weft.base.elsewhere_objects import MODULE
from weft.base.hooks import hooks
from weft.base.public import misfit, needs_arguments
from weft.base.tracebacks import hide_weft
from weft.capture.runtime.modules import (
    call_forward,
    check_settled,
    is_capturing,
    module_scope,
    read_attribute,
    zero_gradient,
)
from weft.errors import ArgumentError
from weft.nn.hooks import NO_HOOKS, Hook, HookHandle, Hooks, add_hook, call_around
from weft.nn.modes import Modes
from weft.nn.parameter import Parameter, is_known, mark

if TYPE_CHECKING:
    from weft.nn.state import KeyDifference
    from weft.nn.summary import Summary


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """What says what a call takes and gives."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...  # noqa: D102


class Module(Modes):
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
    _shown: tuple[str, ...] = ()  # attributes that are settings
    training: bool
    _parameter_names: dict[str, bool]
    _buffer_names: dict[str, bool]  # with whether each is part of the state
    _module_names: dict[str, bool]
    _hooks: Hooks  # replaced, never changed, so that a capture notices
    _parent: tuple[weakref.ref[Module], str] | None  # the module that holds it, and the name it has there

    def __init__(self) -> None:
        own = self.__dict__
        own["training"] = True
        own["_parameter_names"] = {}
        own["_buffer_names"] = {}
        own["_module_names"] = {}
        own["_hooks"] = NO_HOOKS
        own["_parent"] = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What a call computes; subclasses define it."""
        instead = ", got call, as Keras names it" if hasattr(self, "call") else ""
        raise NotImplementedError(f"{type(self).__name__} must define forward{instead}")

    if TYPE_CHECKING:  # a call takes and gives what the class's own forward does

        def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:  # noqa: D102
            ...

    else:

        def __call__(self, *args, **kwargs):
            """Run ``forward``, and the hooks around it."""
            try:
                if is_capturing():
                    with module_scope(self._path()):
                        hooks = read_attribute(self, "_hooks")
                        if hooks is not NO_HOOKS:
                            return call_forward(call_around, self, hooks, args, kwargs)
                        return call_forward(self.forward, *args, **kwargs)
                if self._hooks is not NO_HOOKS:
                    return call_around(self, self._hooks, args, kwargs)
                return self.forward(*args, **kwargs)
            except Exception as error:
                wrong = misfit(getattr(self.forward, "__func__", None), error, kwargs, type(self).__name__)
                if wrong is None:
                    if not is_capturing():
                        hide_weft(error)
                    raise
            try:
                raise wrong
            except ArgumentError:
                hide_weft(wrong)
                raise

    # Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_parameter_names" not in own:
            hint = "call super().__init__() first"
            raise ArgumentError(type(self).__name__, f"must be set up before {name!r} is set", hint=hint)
        if own.get(name, own) is value:
            return
        if isinstance(value, Parameter):
            check_settled(self, name, value, is_one=is_known(value))
            self._enlist("_parameter_names", name)
        elif isinstance(value, Module):
            self._enlist("_module_names", name)
            value.__dict__["_parent"] = (weakref.ref(self), name)
        elif name in own["_parameter_names"] or name in own["_module_names"]:
            if value is not None:
                kind = "parameter" if name in own["_parameter_names"] else "module"
                check_settled(self, name, value, is_one=is_known(value))
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

    def register_parameter(self, name: str, param: Tensor) -> None:
        """Set a parameter, or None: then the module could have one, and has none."""
        if param is None:
            self._enlist("_parameter_names", name)
        elif not isinstance(param, Parameter):
            raise ArgumentError(
                "register_parameter", f"must be a Parameter or None, got {type(param).__name__}"
            )
        setattr(self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
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

    def _named(self, names: str, prefix: str, recurse: bool, once: bool = True) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in module._members(names):
                if id(tensor) not in seen or not once:
                    seen.add(id(tensor))
                    yield _joined(path, name), tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with paths such as ``layers.0.weight``.

        Args:
            prefix: put before each path.
            recurse: whether those of modules inside are among them.
            remove_duplicate: give a parameter that several modules share once, rather than by each path.
        """
        return self._named("_parameter_names", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """All buffers, each once, with paths."""
        return self._named("_buffer_names", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module with a path such as ``layers.0``; "" is this one."""
        found: Module = self._at("get_submodule", target, self.named_modules())
        return found

    def get_parameter(self, target: str) -> Any:
        """The parameter with a path such as ``layers.0.weight``."""
        return self._at("get_parameter", target, self.named_parameters())

    def get_buffer(self, target: str) -> Any:
        """The buffer with a path such as ``norm.running_mean``."""
        return self._at("get_buffer", target, self.named_buffers())

    def _at(self, op: str, target: str, named: Iterator[tuple[str, Any]]) -> Any:
        found = dict(named)
        if target in found:
            return found[target]
        from difflib import get_close_matches

        close = get_close_matches(target, found, 3)
        hint = f"there is {' and '.join(close)}" if close else None
        raise ArgumentError(op, f"must be a path in {type(self).__name__}, got {target!r}", hint=hint)

    # What it does to all it holds: see Modes, too

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
            else:
                zero_gradient(p)

    def to(self, *target: Any, device: DeviceLike | None = None, dtype: DTypeLike | None = None) -> Self:
        """Give floating parameters and buffers another dtype or device; returns the module.

        The parameters stay the same objects, so that optimizers made before keep working.

        >>> import weft
        >>> weft.nn.Linear(2, 3).to(weft.float64).weight.dtype
        dtype('float64')
        """
        from weft.nn.convert import convert

        return convert(self, target, device, dtype)

    def cuda(self, device: DeviceLike | int | None = None) -> Self:
        """The same as ``to("cuda")``, or to another CUDA device by its number."""
        return self.to(weft.device("cuda", device) if isinstance(device, int) else device or "cuda")

    def float(self) -> Self:
        """The same as ``to(weft.float32)``."""
        return self.to(weft.float32)

    def double(self) -> Self:
        """The same as ``to(weft.float64)``."""
        return self.to(weft.float64)

    def half(self) -> Self:
        """The same as ``to(weft.float16)``."""
        return self.to(weft.float16)

    def bfloat16(self) -> Self:
        """The same as ``to(weft.bfloat16)``."""
        return self.to(weft.bfloat16)

    def cpu(self) -> Self:
        """The same as ``to("cpu")``."""
        return self.to("cpu")

    # Hooks

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns replaces the arguments.

        Args:
            hook: ``with_kwargs`` it is ``hook(module, args, kwargs)`` and returns both.
            prepend: run before hooks that are there, rather than after them.
            with_kwargs: whether it is given keywords too.
        """
        return add_hook(self, "forward_pre", hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns replaces the output.

        Args:
            hook: ``with_kwargs`` it is ``hook(module, args, kwargs, output)``.
            prepend: run before hooks that are there, rather than after them.
            with_kwargs: whether it is given keywords too.
        """
        return add_hook(self, "forward", hook, prepend, with_kwargs)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call ``hook(module, grad_output)`` in backward; what it returns replaces the gradients."""
        return add_hook(self, "backward_pre", hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> HookHandle:
        """Call ``hook(module, grad_input, grad_output)`` when backward has gone through the module.

        ``grad_input`` has a gradient for each argument, None where there is none, and what the hook returns
        replaces it; ``grad_output`` has one for each result that requires grad.

        >>> import weft
        >>> layer = weft.nn.Tanh()
        >>> seen = layer.register_full_backward_hook(lambda module, into, out: print(into[0], out[0]))
        >>> layer(weft.zeros(1, requires_grad=True)).sum().backward()
        tensor([1.]) tensor([1.])
        """
        return add_hook(self, "backward", hook, prepend)

    # State

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """All parameters and persistent buffers by their paths, as views: a change of either shows in both.

        Args:
            prefix: put before each path.
            keep_vars: give the parameters themselves rather than views that are cut from the graph.
        """
        from weft.nn.state import state_dict

        return state_dict(self, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> KeyDifference:
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
        """What the text of the module says of its own settings: those that its class lists as ``_shown``."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)

    def __repr__(self) -> str:
        from weft.nn.text import format_module

        return format_module(self)

    def _repr_html_(self) -> str:
        return hooks.module_html(self)

    def summary(self, *args: Any, depth: int | None = None, **kwargs: Any) -> Summary:
        """A table of the modules that a call uses: shapes, parameters, memory and operations.

        The call is captured and not computed, so nothing changes; only types of the arguments matter.

        Args:
            args: of the call; tensors, or ``weft.TensorType``.
            depth: how deep modules inside modules are shown; all by default.
            kwargs: of the call.

        >>> import weft
        >>> from weft import nn
        >>> print(nn.Sequential(nn.Linear(4, 8), nn.Tanh()).summary(weft.ones((2, 4))))
        module              output  parameters  memory  flops
        Sequential          (2, 8)          40   288 B    160
          0: Linear         (2, 8)          40   224 B    144
          1: Tanh           (2, 8)                64 B     16
        40 parameters (160 B), all trained
        """
        from weft.nn.summary import summarize

        if not args and not kwargs and needs_arguments(self.forward):
            hint = "model.summary(x) takes what a call takes; print(model) shows modules and parameters"
            raise ArgumentError("summary", "the arguments of a call must be given, got none", hint=hint)
        return summarize(self, args, kwargs, depth)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


for _name, _hint in MODULE.items():
    if not hasattr(Module, _name):
        setattr(Module, _name, Missing(_name, _hint))
