"""Module: a tree of parameters, buffers and child modules with a ``forward``.

Read ``__setattr__`` first: assignment sorts values into ``_parameters``, ``_buffers``, ``_modules`` or the instance
dict. Saving and loading is ``StateDictMixin`` (state_dict.py), hooks are ``HookMixin`` (hooks.py), moving and casting
``ConversionMixin`` (conversion.py), what notebooks show ``NotebookMixin`` (notebook.py).

Compiled steps bake every plain attribute they read (``training``, sizes, flags), so a change of one bumps the global
guard epoch: compiled steps then check their guards again. When ``training`` changes back, so does the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeVar

import autojit as aj
from autojit.core.counted_dict import CountedDict, counted
from autojit.core.epoch import is_met, meet, write_attribute
from autojit.core.tracebacks import trim
from autojit.nn.calls_in_steps import call_in_step, note_module
from autojit.nn.conversion import ConversionMixin
from autojit.nn.hooks import HOOK_KINDS, HookMixin, registered
from autojit.nn.notebook import NotebookMixin
from autojit.nn.parameter import Buffer, Parameter, register_as_told
from autojit.nn.state_dict import StateDictMixin
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch, state

_MEMBERS = ("_parameters", "_buffers", "_modules")
_EXPECTED = {  # of assignments to existing members
    "_parameters": ("parameter", "torch.nn.Parameter or None"),
    "_modules": ("child module", "torch.nn.Module or None"),
    "_buffers": ("buffer", "torch.nn.Buffer, torch.Tensor or None"),
}


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_Destination = TypeVar("_Destination", bound=dict[str, Any])


class Module(StateDictMixin, HookMixin, ConversionMixin, NotebookMixin):
    """Base of all layers and models; torch.nn.Module's interface.

    Subclasses call ``super().__init__()`` first, assign parameters and children, and define ``forward``.

    Example:
        >>> import autojit as aj
        >>> class Scale(aj.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = aj.nn.Parameter(aj.ones(1))
        ...
        ...     def forward(self, x):
        ...         return self.factor * x
        >>> [name for name, _ in Scale().named_parameters()]
        ['factor']
    """

    T_destination = _Destination
    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _compiled_call_impl: Callable[..., Any] | None = None
    call_super_init: bool = False  # whether ``__init__`` hands its arguments on to the next class
    dump_patches: bool = False  # of torch's older versions; has no meaning
    _of_jitted: ClassVar[Callable[[Any], Any]]  # what `jit` hands out for a module that it compiles (`nn.jitted`)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.call_super_init:
            super().__init__(*args, **kwargs)
        elif args or kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got unexpected arguments: Module takes none"
                f" (got {len(args)} positional, {sorted(kwargs)} by keyword)"
            )
        state = self.__dict__
        state["training"] = True
        state["_parameters"] = CountedDict()
        state["_buffers"] = CountedDict()
        state["_non_persistent_buffers_set"] = set()
        state["_modules"] = CountedDict()
        for kind in HOOK_KINDS:
            state[kind] = {}

    def forward(self, *input: Any) -> Any:
        """The computation of the module; every subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        pieces = state.pieces
        if pieces is not None and (step := pieces.step_of(self)) is not None:
            return pieces.run(step, args, kwargs)
        try:
            if state.trace is not None:
                return call_in_step(self, state.trace.parts, args, kwargs)
            if self._has_call_hooks():
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            trim(error)
            note_module(error, self)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """The call with its hooks, uncompiled."""
        return self._call_with_hooks(args, kwargs) if self._has_call_hooks() else self.forward(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile calls of this module with ``aj.jit``; torch.compile's options are accepted and have no meaning.

        Example:
            >>> import autojit as aj
            >>> layer = aj.nn.ReLU()
            >>> layer.compile()
            >>> layer(aj.tensor([-1.0, 1.0]))
            tensor([0., 1.])
        """
        self._compiled_call_impl = aj.jit(self._call_impl)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and saved: everything but the compiled call."""
        state = dict(self.__dict__)
        state.pop("_compiled_call_impl", None)
        return state | {kind: dict(state[kind]) for kind in _MEMBERS if kind in state}

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        for kind in _MEMBERS:
            members = self.__dict__.get(kind)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._forget(name, keep="_parameters", what="parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._forget(name, keep="_modules", what="module")
            self._modules[name] = registered("module", self, name, value)  # a __getattr__ that needs it is not asked
        elif isinstance(value, Buffer) and not self._is_other_member(name):
            register_as_told(self, name, value)
        elif not self._replaces_member(name, value):
            write_attribute(self, name, value)

    def _forget(self, name: str, keep: str, what: str) -> None:
        """Before assigning a member: the module must be initialised, and ``name`` may mean nothing else."""
        state = self.__dict__
        if keep not in state:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        state.pop(name, None)
        for kind in _MEMBERS:
            if kind != keep:
                state[kind].pop(name, None)
        state["_non_persistent_buffers_set"].discard(name)

    def _is_other_member(self, name: str) -> bool:
        """Whether ``name`` is a parameter or a module, which a buffer never replaces."""
        return any(name in self.__dict__.get(kind, ()) for kind in ("_parameters", "_modules"))

    def _replaces_member(self, name: str, value: Any) -> bool:
        """Assign None (or a tensor, for a buffer) to an existing member; False when ``name`` is not a member."""
        state = self.__dict__
        if name in state.get("_parameters", ()):
            kind = "_parameters"
        elif name in state.get("_modules", ()):
            kind = "_modules"
        elif name in state.get("_buffers", ()):
            kind = "_buffers"
        else:
            return False
        if value is not None and not (kind == "_buffers" and isinstance(value, Tensor)):
            what, expected = _EXPECTED[kind]
            raise TypeError(f"cannot assign '{_type_name(value)}' as {what} '{name}' ({expected} expected)")
        if kind == "_parameters":
            self.register_parameter(name, None)
        else:
            state[kind][name] = value
        return True

    def __delattr__(self, name: str) -> None:
        if is_met(self.__dict__):
            bump_guard_epoch()
        for kind in _MEMBERS:
            members = self.__dict__.get(kind, {})
            if name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {kind: counted(state[kind]) for kind in _MEMBERS if kind in state})
        for kind in HOOK_KINDS:  # a file of before there was this kind
            self.__dict__.setdefault(kind, {})
        if is_met(self.__dict__):
            meet(*(self.__dict__[kind] for kind in _MEMBERS if kind in state))
            bump_guard_epoch()

    # ---- registration

    def _check_name(self, name: str, members: str, what: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' if what != "module" else
                           f'module name can\'t contain ".", got: {name}')  # fmt: skip
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[members]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; AttributeError before ``__init__``, KeyError for a bad name, TypeError for a bad value."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name(name, "_parameters", "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = registered("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer: state that is not a parameter; ``persistent`` ones are part of ``state_dict``."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name(name, "_buffers", "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = registered("buffer", self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under ``name``."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        self._check_name(name, "_modules", "module")
        self._modules[name] = registered("module", self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as ``add_module``."""
        self.add_module(name, module)

    # ---- the tree

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; AttributeError naming the first missing part."""
        module: Module = self
        for part in filter(None, target.split(".")):
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            found = getattr(module, part)
            if not isinstance(found, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace (with ``strict``: only an existing) module at a dotted path."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path; AttributeError when there is none."""
        _, name, found = self._get_member(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path; AttributeError when there is none."""
        module, name, found = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        tensor: Tensor = found
        return tensor

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their dotted names, parents first."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children with their names, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in owners:
            for name, value in module.__dict__[kind].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names, each once."""
        yield from self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their dotted names, each once."""
        yield from self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # ---- modes and conversion

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call ``fn`` on every module of the tree, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode on the whole tree."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode on the whole tree."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Say of every parameter whether it gets gradients."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        bump_guard_epoch()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget (or zero) the gradient of every parameter."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None  # written without reading: a trace needs no old gradient
            elif parameter.grad is not None:
                parameter.grad.detach_().zero_()

    # ---- text

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What ``repr`` shows besides the children; layers show their sizes."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        children = [f"({name}): {_addindent(repr(module))}" for name, module in self._modules.items()]
        if not children and len(extra_lines) <= 1:
            return f"{self._get_name()}({extra})"
        lines = "\n  ".join(extra_lines + children)
        return f"{self._get_name()}(\n  {lines}\n)" if lines else f"{self._get_name()}()"


def _addindent(text: str, spaces: int = 2) -> str:
    """The text with every line but the first moved to the right."""
    return text.replace("\n", "\n" + " " * spaces)
