"""Saving and loading the tensors of a Module: ``state_dict`` and ``load_state_dict`` with torch's keys and messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

import autojit as aj
from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.functions.exchange import is_foreign_array
from autojit.nn.hooks import RemovableHandle, add_hook
from autojit.nn.key_hints import key_hints
from autojit.nn.parameter import Parameter, is_lazy
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch
from autojit.utils.swapped import exchange

if TYPE_CHECKING:
    from autojit.nn.module import Module

_EXTRA_STATE = "_extra_state"

settings = {"swap": False}
"""``__future__.set_swap_module_params_on_conversion``: whether ``assign=True`` keeps the parameter objects."""


class IncompatibleKeys(NamedTuple):
    """What ``load_state_dict`` found to differ."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __str__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    def __repr__(self) -> str:
        return str(self)


class StateDict(OrderedDict[str, Any]):
    """An ordered dict of tensors; ``_metadata`` holds each module's version for later migrations."""

    _metadata: OrderedDict[str, Any]


class StateDictMixin:
    """The saving half of Module."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]  # modules and None; libraries read the annotations of classes, so each names what is here
    _non_persistent_buffers_set: set[str]
    _state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _state_dict_hooks: dict[int, Callable[..., Any]]
    _state_dict_hooks_in_place: dict[int, bool]
    _load_state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: dict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """Further state to save under ``_extra_state``; override together with ``set_extra_state``."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Take back what ``get_extra_state`` returned."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before the module is saved."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after the module was saved; it edits in place."""
        handle = add_hook(self._state_dict_hooks, hook)
        handle.keep_with(self._state_dict_hooks_in_place)
        return handle

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``register_state_dict_post_hook`` under an older name; what the hook returns replaces the root's dict."""
        return add_hook(self._state_dict_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """Call ``hook(state_dict, prefix, ...)`` before loading, with the module first only if ``with_module``."""
        if with_module:
            return add_hook(self._load_state_dict_pre_hooks, hook)

        def without_module(module: Any, *args: Any) -> None:
            hook(*args)

        return add_hook(self._load_state_dict_pre_hooks, without_module)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)`` before loading."""
        return add_hook(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may edit the lists in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def _persistent_buffers(self) -> Iterable[tuple[str, Tensor]]:
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield name, buffer

    def _has_extra_state(self, method: str = "get_extra_state") -> bool:
        return getattr(type(self), method) is not getattr(StateDictMixin, method)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._persistent_buffers():
            destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if self._has_extra_state():
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name; the tensors share storage with the module's.

        Args:
            destination: a dict to fill instead of a new one.
            prefix: put before every name.
            keep_vars: keep the tensors themselves instead of detached ones.
        """
        if args:
            warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for details.",
                FutureWarning,
            )
            given = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = given[:3]
        if destination is None:
            destination = StateDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for number, hook in self._state_dict_hooks.items():
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is not None and number in self._state_dict_hooks_in_place:
                raise UsageError("state_dict post-hook must return None", {"hook": hook}, "edit the dict in place")
            destination = destination if replaced is None else replaced
        return cast(dict[str, Any], destination)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own tensors, not its children's; what differs goes into the three lists."""
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        for hook in self._load_state_dict_pre_hooks.values():
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own: dict[str, Tensor] = {name: p for name, p in self._parameters.items() if p is not None}
        own.update(self._persistent_buffers())
        for name, target in own.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            problem = _load_tensor(cast("Module", self), name, target, key, state_dict[key], assign)
            if problem:
                error_msgs.append(problem)
        self._load_extra_state(state_dict, prefix, missing_keys)
        unexpected_keys.extend(self._unexpected(state_dict, prefix, own))

    def _load_extra_state(self, state_dict: Mapping[str, Any], prefix: str, missing_keys: list[str]) -> None:
        if not self._has_extra_state("set_extra_state"):
            return
        key = prefix + _EXTRA_STATE
        if key in state_dict:
            self.set_extra_state(state_dict[key])
        else:
            missing_keys.append(key)

    def _unexpected(self, state_dict: Mapping[str, Any], prefix: str, own: dict[str, Tensor]) -> Iterable[str]:
        for key in state_dict:
            if not key.startswith(prefix):
                continue
            name, _, rest = key[len(prefix) :].partition(".")
            if name == _EXTRA_STATE:
                is_known = self._has_extra_state("set_extra_state")
            elif rest:
                is_known = name in self._modules
            else:
                is_known = name in own
            if not is_known:
                yield key

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy tensors of ``state_dict`` into the parameters and buffers of the same names.

        Args:
            strict: missing or unexpected keys are an error.
            assign: take the given tensors themselves instead of copying their values.

        Raises:
            RuntimeError: keys differ (``strict``) or a shape does; names all of them.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", {})
        state = OrderedDict(state_dict)
        self._load_tree(state, "", metadata, assign, missing, unexpected, errors)
        if strict:
            errors = _key_errors(missing, unexpected) + errors
        if errors:
            listed = "\n\t".join(errors)
            error = RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
            for hint in key_hints(missing, unexpected):
                error.add_note(hint)
            raise error
        bump_guard_epoch()
        return IncompatibleKeys(missing, unexpected)

    def _load_tree(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Mapping[str, Any], assign: bool, *found: list[str]
    ) -> None:
        """Load this module and those below; missing keys, unexpected ones and errors go into the lists ``found``."""
        local_metadata = dict(metadata.get(prefix[:-1], {}))
        if assign:
            local_metadata["assign_to_params_buffers"] = True
        self._load_from_state_dict(state_dict, prefix, local_metadata, True, *found)
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}{name}."
                part = {key: value for key, value in state_dict.items() if key.startswith(path)}
                module._load_tree(part, path, metadata, assign, *found)
        incompatible = IncompatibleKeys(*found[:2])
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, incompatible) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                    "values, if incompatible_keys need to be modified, it should be done inplace."
                )


def _key_errors(missing: list[str], unexpected: list[str]) -> list[str]:
    kinds = {"Missing": missing, "Unexpected": unexpected}
    quoted = {kind: ", ".join(f'"{key}"' for key in keys) for kind, keys in kinds.items() if keys}
    return [f"{kind} key(s) in state_dict: {keys}. " for kind, keys in quoted.items()]


def _load_tensor(module: Module, name: str, target: Tensor, key: str, value: Any, assign: bool) -> str:
    """Load one tensor; returns what is wrong with it, or an empty string."""
    if not isinstance(value, Tensor | np.ndarray) and is_foreign_array(value):
        value = aj.as_tensor(value, device="cpu")  # a tensor of torch's, on the same memory
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint '
            f"but received {type(value)}"
        )
    if is_lazy(target):
        return ""  # both are without a shape: a module materialises its own for others before it is loaded
    if target.ndim == 0 and tuple(value.shape) == (1,):
        value = value[0]  # old checkpoints stored zero-dimensional tensors as one-dimensional
    if tuple(value.shape) != tuple(target.shape):
        return (
            f"size mismatch for {key}: copying a param with shape {_size(value)} from checkpoint, "
            f"the shape in current model is {_size(target)}."
        )
    if not assign and target.is_meta and not value.is_meta:
        warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
            "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary "
            "to their corresponding key in the module instead of copying them in place?)",
            UserWarning,
        )
    if settings["swap"] and (isinstance(target, Parameter) or not assign):
        _swap_in(target, value, assign)
    elif not assign:
        with aj.no_grad():
            target.copy_(value)
    elif isinstance(target, Parameter):
        is_parameter = isinstance(value, Parameter)
        setattr(module, name, value if is_parameter else Parameter(value, target.requires_grad))
    else:
        setattr(module, name, value)
    return ""


def _swap_in(target: Tensor, value: Tensor, assign: bool) -> None:
    """Let the tensor of a module become what its ``module_load`` makes of a loaded one, as the object that it is.

    A view that was taken of it before keeps showing the memory from before.
    """
    with aj.no_grad():
        made = target.module_load(value, assign=assign)
    if made is target or made is value:
        raise UsageError(
            "module_load returned one of self or other, please .detach() the result if returning one of the inputs in "
            "module_load",
            {"self": target, "other": value},
        )
    if isinstance(target, Parameter) and not isinstance(made, Parameter):
        made = Parameter(made, target.requires_grad)
    exchange(target, made.requires_grad_(target.requires_grad))


def _size(tensor: Tensor) -> str:
    return f"torch.Size({list(tensor.shape)})"


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off the names in a state, in place: what `DataParallel` puts before those of its module.

    Example:
        >>> from autojit import nn
        >>> from autojit.nn.modules.utils import consume_prefix_in_state_dict_if_present
        >>> state = {"module.weight": 1, "bias": 2}
        >>> consume_prefix_in_state_dict_if_present(state, "module.")
        >>> sorted(state)
        ['bias', 'weight']
    """
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[name.removeprefix(prefix)] = state_dict.pop(name)
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", None) or {}
    for name in list(metadata):
        whole = prefix.removesuffix(".")
        if name and (name == whole or name.startswith(prefix)):
            metadata[name.removeprefix(whole).removeprefix(".")] = metadata.pop(name)
