"""Hooks of a Module: their registration and their part in a call.

A Module keeps one ordered dict per kind of hook, keyed by a number only the ``RemovableHandle`` knows. The dicts are
plain attributes, so a call without hooks costs one truth test. How a hook of ``forward`` is called is in other tables,
as in torch: programs look for their hooks among the values of ``_forward_pre_hooks``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from autojit.core.epoch import bump_switch_epoch, hooks_of_all
from autojit.core.user_warnings import warn
from autojit.nn.backward_hooks import after_the_last_node, with_backward_hooks
from autojit.tensor.node import RemovableHandle as TensorHandle
from autojit.tensor.node import new_number, take_out
from autojit.tensor.state import state

HOOK_KINDS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_last_node_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_hooks_in_place",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class RemovableHandle(TensorHandle):
    """What registering a hook returns; ``remove()`` takes the hook away. Works as a context manager too."""

    __slots__ = ("_beside", "_kept")

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._kept, self._beside = hooks, list[dict[int, bool]]()
        self.id = new_number()

    @property
    def hooks_dict_ref(self) -> Callable[[], dict[int, Any]]:
        """torch's name for what gives the table of hooks."""
        return lambda: self._kept

    def keep_with(self, table: dict[int, bool]) -> None:
        """Note the hook in a table that says how it is called."""
        table[self.id] = True
        self._beside.append(table)

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        if take_out(self._kept, self.id):
            bump_switch_epoch()
            if state.hook_changes is None:  # a capture may put it back; a word about a hook that is gone does no harm
                for table in self._beside:
                    table.pop(self.id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], hook: Any, prepend: bool = False) -> RemovableHandle:
    """Append (or prepend) ``hook``; compiled steps are checked again, since they baked the hooks they met."""
    handle = RemovableHandle(hooks)
    others = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[handle.id] = hook
    hooks.update(others)
    bump_switch_epoch()
    return handle


def pre_hook_of(module: HookMixin, kind: type, **attributes: object) -> tuple[int, Any] | None:
    """Key and hook, of those before ``forward``, of a class and with such attributes."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and all(getattr(hook, name) == value for name, value in attributes.items()):
            return key, hook
    return None


everywhere: dict[int, tuple[str, Any]] = hooks_of_all("the calls of all modules")
"""Hooks of the calls of all modules: the kind of each, and what a module of its own would keep."""

_of_registration: dict[int, tuple[str, Callable[..., Any]]] = hooks_of_all("what modules get")


def _of_kind(kind: str) -> list[Any]:
    return [kept for found, kept in everywhere.values() if found == kind] if everywhere else []


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, args)`` before ``forward`` of every module, before the module's own hooks."""
    return add_hook(everywhere, ("_forward_pre_hooks", (hook, False)))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after ``forward`` of every module, before the module's own hooks.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn.modules.module import register_module_forward_hook
        >>> with register_module_forward_hook(lambda module, args, output: print(type(module).__name__)):
        ...     _ = aj.nn.ReLU()(aj.ones(1))
        ReLU
    """
    return add_hook(everywhere, ("_forward_hooks", (hook, with_kwargs, always_call)))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` in backward of every module."""
    return add_hook(everywhere, ("_backward_pre_hooks", hook))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` in backward of every module."""
    return add_hook(everywhere, ("_backward_hooks", hook))


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` after the node of every module's output; an older form."""
    return add_hook(everywhere, ("_last_node_hooks", hook))


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, parameter)`` when a module gets a parameter; it may return another one."""
    return add_hook(_of_registration, ("parameter", hook))


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` when a module gets a buffer; it may return another one."""
    return add_hook(_of_registration, ("buffer", hook))


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, child)`` when a module gets a child; it may return another one."""
    return add_hook(_of_registration, ("module", hook))


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """What a module registers under ``name``, after the hooks of all registrations."""
    for found, hook in list(_of_registration.values()):
        if found == kind:
            replaced = hook(module, name, value)
            value = value if replaced is None else replaced
    return value


class HookMixin:
    """The hook half of Module."""

    _forward_pre_hooks: dict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: dict[int, bool]
    _forward_hooks: dict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: dict[int, bool]
    _forward_hooks_always_called: dict[int, bool]
    _backward_pre_hooks: dict[int, Callable[..., Any]]
    _backward_hooks: dict[int, Callable[..., Any]]
    _last_node_hooks: dict[int, Callable[..., Any]]
    _hooks_of_all: ClassVar[dict[int, tuple[str, Any]]] = everywhere

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns (unless None) replaces the arguments.

        With ``with_kwargs`` it is called as ``hook(module, args, kwargs)`` and returns ``(args, kwargs)``.
        """
        handle = add_hook(self._forward_pre_hooks, hook, prepend)
        if with_kwargs:
            handle.keep_with(self._forward_pre_hooks_with_kwargs)
        return handle

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns (unless None) replaces the output.

        With ``with_kwargs`` it is called as ``hook(module, args, kwargs, output)``; with ``always_call`` also when
        ``forward`` raised (its output is then None).
        """
        handle = add_hook(self._forward_hooks, hook, prepend)
        if with_kwargs:
            handle.keep_with(self._forward_hooks_with_kwargs)
        if always_call:
            handle.keep_with(self._forward_hooks_always_called)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` when the gradients of the output are known; it may replace them."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are known.

        What it returns (unless None) replaces ``grad_input``.
        """
        self._refuse_mixture(self._last_node_hooks)
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` after the node that made the output has run in backward.

        An older form: the gradients are those of the last op of ``forward``, not of the module's inputs.

        Raises:
            RuntimeError: the module has a full backward hook.
        """
        self._refuse_mixture(self._backward_hooks)
        return add_hook(self._last_node_hooks, hook)

    def _refuse_mixture(self, others: dict[int, Any]) -> None:
        if others:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only "
                "one of them."
            )

    def _has_call_hooks(self) -> bool:
        d = self.__dict__
        first = d["_forward_hooks"] or d["_forward_pre_hooks"] or d["_backward_hooks"]
        return bool(first or d["_backward_pre_hooks"] or d["_last_node_hooks"] or everywhere)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        done: set[int] = set()
        try:
            args, kwargs = self._run_forward_pre_hooks(args, kwargs)
            before = [*_of_kind("_backward_pre_hooks"), *self._backward_pre_hooks.values()]
            after = [*_of_kind("_backward_hooks"), *self._backward_hooks.values()]
            if before or after:
                forward = self.forward  # type: ignore[attr-defined]
                output = with_backward_hooks(self, before, after, forward, args, kwargs)
            else:
                output = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
            output = self._run_forward_hooks(args, kwargs, output, done)
            last = [*_of_kind("_last_node_hooks"), *self._last_node_hooks.values()]
            if last:
                after_the_last_node(self, last, args, output)
            return output
        except Exception:
            self._run_always_called_hooks(args, kwargs, done)
            raise

    def _run_forward_pre_hooks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        by_name = self._forward_pre_hooks_with_kwargs
        own = [(hook, number in by_name) for number, hook in self._forward_pre_hooks.items()]
        for hook, with_kwargs in [*_of_kind("_forward_pre_hooks"), *own]:
            if with_kwargs:
                found = hook(self, args, kwargs)
                if found is None:
                    continue
                if not (isinstance(found, tuple) and len(found) == 2):
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}."
                    )
                args, kwargs = found
            else:
                found = hook(self, args)
                if found is not None:
                    args = found if isinstance(found, tuple) else (found,)
        return args, kwargs

    def _run_forward_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, done: set[int]) -> Any:
        for number, (hook, with_kwargs, _) in self._all_forward_hooks():
            done.add(number)
            found = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
            if found is not None:
                output = found
        return output

    def _all_forward_hooks(self) -> list[tuple[int, tuple[Callable[..., Any], bool, bool]]]:
        """Those of all modules, then the module's own, each with its number."""
        of_all = [(number, kept) for number, (kind, kept) in everywhere.items() if kind == "_forward_hooks"]
        by_name, always = self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        return [*of_all, *((n, (hook, n in by_name, n in always)) for n, hook in self._forward_hooks.items())]

    def _run_always_called_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], done: set[int]) -> None:
        """After an exception: the hooks registered with ``always_call`` that have not run yet."""
        for number, (hook, with_kwargs, always_call) in self._all_forward_hooks():
            if not always_call or number in done:
                continue
            try:
                _ = hook(self, args, kwargs, None) if with_kwargs else hook(self, args, None)
            except Exception as error:  # what forward raised is what the caller is to see
                what = "that was silenced as another error was raised in forward"
                warn(f"module forward hook with ``always_call=True`` raised an exception {what}: {error}")
