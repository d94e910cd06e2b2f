"""Names of a step's state: the way from the function to each tensor, as a user would write it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from autojit.core.wrapping import code_holder
from autojit.functions.random import Generator, default_generator
from autojit.jit.function import JitFunction
from autojit.nn.module import Module
from autojit.optim.optimizer import Optimizer
from autojit.tensor.tensor import Tensor

MOST_OBJECTS = 100_000  # that are looked through for names
_LEAVES = (Tensor, ModuleType, type, str, bytes, int, float, complex)
_WORD = re.compile(r"\W+")


def names_of_arrays(function: Callable[..., Any]) -> dict[int, str]:
    """By the id of an array: the shortest way from a function to the tensor that shows it.

    Parameters and buffers have the names of ``state_dict``, after the name of the module where it is not the function
    itself; what an optimiser keeps for a parameter is named by both.
    """
    found = _Names()
    parameters: dict[int, str] = {}
    reached = list(_reached(function))
    for name, value in reached:  # first: optimisers name what they keep by the parameters
        if isinstance(value, Module):
            _note_module(name, value, found, parameters)
    for name, value in reached:
        if isinstance(value, Tensor):
            found.note(name, value)
        elif isinstance(value, Optimizer):
            for inner, t in _of_optimizer(name, value, parameters):
                found.note(inner, t)
    return found.by_array


class _Names:
    """Names of arrays, each once."""

    def __init__(self) -> None:
        self.by_array: dict[int, str] = {}
        self._taken: set[str] = set()

    def note(self, name: str, t: Tensor) -> None:
        """A tensor is reached by a name: its array, its storage, its gradient."""
        storage = t._storage
        self._give(name, *(a for a in (t._array, None if storage is None else storage.array) if a is not None))
        if t._grad is not None and t._grad._array is not None:
            self._give(f"{name}.grad", t._grad._array)

    def _give(self, name: str, *arrays: Any) -> None:
        fresh = [array for array in arrays if id(array) not in self.by_array]
        if fresh:
            made = unique(name, self._taken)
            self.by_array.update((id(array), made) for array in fresh)


def unique(name: str, taken: set[str]) -> str:
    """A name, numbered where another has it."""
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made


def _reached(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What is reached from a function, the nearest first, with the way there."""
    seen: set[int] = set()
    waiting = deque([*_roots(function), ("default_generator", default_generator)])
    while waiting and len(seen) < MOST_OBJECTS:
        name, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield name, value
        waiting.extend(_parts(name, value))


def _roots(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What a function reaches by names: its object, its closure, its globals."""
    if isinstance(function, JitFunction):
        function = function.function
    if isinstance(function, Module):
        yield "", function
        return
    if isinstance(function, MethodType):
        yield "", function.__self__
    plain: Any = code_holder(function)
    plain = plain.__func__ if isinstance(plain, MethodType) else plain
    if not isinstance(plain, FunctionType):
        return
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            continue
    yield from ((name, plain.__globals__[name]) for name in plain.__code__.co_names if name in plain.__globals__)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, with its names."""
    if isinstance(value, Generator):
        yield name, value._state
    elif isinstance(value, dict):
        yield from ((_joined(name, key), item) for key, item in value.items() if isinstance(key, str | int))
    elif type(value) in (list, tuple):
        yield from ((_joined(name, k), item) for k, item in enumerate(value))
    elif type(value) is FunctionType or isinstance(value, JitFunction):
        yield from _roots(value)
    elif not isinstance(value, _LEAVES) and _is_of_user(type(value)):
        yield from ((_joined(name, key), item) for key, item in getattr(value, "__dict__", {}).items())


def _is_of_user(kind: type) -> bool:
    """Whether attributes of a class's objects are the user's: not those of autojit's objects, but of its modules."""
    return issubclass(kind, Module | Optimizer) or kind.__module__.partition(".")[0] not in ("builtins", "autojit")


def _of_optimizer(name: str, optimizer: Optimizer, parameters: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """What an optimiser keeps: by parameter, and its numbers as steps read them."""
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    for k, parameter in enumerate(owned):
        of = parameters.get(id(parameter), str(k))
        kept = optimizer.state.get(parameter, {})
        yield from ((f"{_joined(name, of)}.{key}", t) for key, t in kept.items() if isinstance(t, Tensor))
    for k, group in enumerate(optimizer.param_groups):
        for (slot, place), t in getattr(group, "_slots", {}).items():
            at = () if place is None else (str(place),)
            yield ".".join([_joined(name, "param_groups"), str(k), slot, *at]), t


def _joined(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _note_module(name: str, module: Module, found: _Names, parameters: dict[int, str]) -> None:
    prefix = f"{name}." if name else ""
    for key, t in module.named_parameters():
        parameters.setdefault(id(t), key)
        found.note(prefix + key, t)
    for key, buffer in module.named_buffers():
        found.note(prefix + key, buffer)


def identifier(name: str, taken: set[str]) -> str:
    """A name as C can have it, which no other has."""
    plain = _WORD.sub("_", name).strip("_") or "value"
    plain = f"_{plain}" if plain[0].isdigit() or plain in _KEYWORDS else plain
    return unique(plain, taken)


_KEYWORDS = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "class",
    "new", "delete", "this", "template", "operator", "namespace", "private", "public", "protected", "virtual", "bool",
    "true", "false", "catch", "try", "throw", "using", "and", "or", "not", "xor", "errno",
}  # fmt: skip
