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
    found: dict[int, str] = {}
    parameters: dict[int, str] = {}
    seen: set[int] = set()
    waiting = deque(_roots(function))
    waiting.append(("generator", default_generator._state))
    for name, value in list(waiting):
        if isinstance(value, Module):
            _note_module(name, value, found, parameters)
    while waiting and len(seen) < MOST_OBJECTS:
        name, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            _note(name, value, found)
        elif isinstance(value, Module):
            _note_module(name, value, found, parameters)
        waiting.extend(_parts(name, value, parameters))
    return found


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


def _parts(name: str, value: Any, parameters: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """What an object holds, with its names."""
    kind = type(value)
    if isinstance(value, Generator):
        yield name, value._state
    elif isinstance(value, Optimizer):
        for parameter, kept in value.state.items():
            of = parameters.get(id(parameter), f"parameter{len(parameters)}")
            yield f"{name}.{of}", kept
        for k, group in enumerate(value.param_groups):
            for (slot, place), t in getattr(group, "_slots", {}).items():
                yield ".".join([name, "param_groups", str(k), slot, *([] if place is None else [str(place)])]), t
    if isinstance(value, dict):
        yield from ((_joined(name, key), item) for key, item in value.items() if isinstance(key, str | int))
    elif kind in (list, tuple):
        yield from ((_joined(name, k), item) for k, item in enumerate(value))
    elif kind is FunctionType:
        yield from _roots(value)
    elif isinstance(value, JitFunction):
        yield from _roots(value.function)
    elif not isinstance(value, _LEAVES) and kind.__module__.partition(".")[0] not in ("builtins", "autojit"):
        yield from ((_joined(name, key), item) for key, item in getattr(value, "__dict__", {}).items())


def _joined(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _note_module(name: str, module: Module, found: dict[int, str], parameters: dict[int, str]) -> None:
    prefix = f"{name}." if name else ""
    for key, t in module.named_parameters():
        parameters.setdefault(id(t), key)
        _note(prefix + key, t, found)
    for key, t in module.named_buffers():
        _note(prefix + key, t, found)


def _note(name: str, t: Tensor, found: dict[int, str]) -> None:
    if t._array is not None:
        found.setdefault(id(t._array), name)
    storage = t._storage
    if storage is not None and storage.array is not None:
        found.setdefault(id(storage.array), name)
    if t._grad is not None and t._grad._array is not None:
        found.setdefault(id(t._grad._array), f"{name}.grad")


def identifier(name: str, taken: set[str]) -> str:
    """A name as C can have it, which no other has."""
    plain = _WORD.sub("_", name).strip("_") or "value"
    plain = f"_{plain}" if plain[0].isdigit() or plain in _KEYWORDS else plain
    made, number = plain, 1
    while made in taken:
        number += 1
        made = f"{plain}_{number}"
    taken.add(made)
    return made


_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    class new delete this template operator namespace private public protected virtual bool true false catch try
    throw using and or not xor errno""".split()
)
