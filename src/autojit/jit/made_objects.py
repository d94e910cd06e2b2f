"""Objects that a step makes and lets out: every call makes others like them.

``return SimpleNamespace(loss=loss)``, ``self.last = Output(x)``, ``log.append({1, 2})``: eager mode makes a new object
at every call, and a capture runs once. So what the function lets out is taken apart by the protocol of ``copy`` and
``pickle`` (``__reduce_ex__``) into how it is made and what it holds, and put together again after every call from the
tensors and numbers of that call. What exists outside is handed on as it is.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import TraceError
from autojit.core.sizes import is_symbolic
from autojit.jit.arguments import BAKED
from autojit.jit.observed_functions import is_module
from autojit.jit.places import cell_content, is_a
from autojit.jit.pytree import LEAF, TreeSpec, flatten, taken_apart
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.size import Size
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

_WHOLE = (  # they have no parts that a step could compute, or are one to the step
    *BAKED, Tensor, TracedNumber, DType, np.generic, np.dtype, type, range, slice, type(Ellipsis), type(NotImplemented),
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType, property,
    weakref.ref, Size,
)  # fmt: skip


class Leaves:
    """Leaves on their way into a structure, and the objects that have been made of them by now."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._rest = iter(leaves)
        self.made: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._rest)


class Made(TreeSpec):
    """An object that is made anew. ``keys``: its number, and whether it has a state; children: what it is made of.

    The children are the function and its arguments, the state, items and pairs, as ``__reduce_ex__`` names them.
    """

    def _build(self, leaves: Leaves) -> Any:
        number, has_state = self.keys
        function, *arguments = self.children[0]._build(leaves)
        made = leaves.made[number] = function(*arguments)
        state, items, pairs = [child._build(leaves) for child in self.children[1:]]
        if has_state:
            _give_state(made, state)
        for item in items:
            made.append(item)
        for key, value in pairs:
            made[key] = value
        return made


class Shared(TreeSpec):
    """A list, dictionary or record that is let out in several places; ``keys``: its number."""

    def _build(self, leaves: Leaves) -> Any:
        made = leaves.made[self.keys[0]] = self.children[0]._build(leaves)
        return made


class Again(TreeSpec):
    """An object that has been made already; ``keys``: its number."""

    def _build(self, leaves: Leaves) -> Any:
        return leaves.made[self.keys[0]]


def _give_state(made: Any, given: Any) -> None:
    if hasattr(made, "__setstate__"):
        made.__setstate__(given)
        return
    held, slots = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if held:
        made.__dict__.update(held)
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)


def put_together(tree: TreeSpec) -> Callable[[Sequence[Any]], Any]:
    """How a result is put together from its leaves."""
    return (lambda leaves: tree._build(Leaves(leaves))) if _makes(tree) else tree.unflatten


def _makes(tree: TreeSpec) -> bool:
    return isinstance(tree, Made | Shared) or any(map(_makes, tree.children))


def let_out(value: Any, outside: Mapping[int, Any]) -> tuple[list[Any], TreeSpec]:
    """``flatten`` of what a captured function lets out; ``outside``: what existed before, by id.

    Raises:
        TraceError: an object cannot be made again at every call.
    """
    leaves: list[Any] = []
    opener = _Opener(outside, leaves.append)
    return leaves, opener.with_shared(opener.opened(value))


def with_plain_keys(tree: TreeSpec) -> TreeSpec:
    """The structure of results whose dictionaries have no traced numbers as keys: the step holds for these digits."""
    keys = tuple([key.concrete() if isinstance(key, TracedNumber) else key for key in tree.keys])
    return replace(tree, children=tuple([with_plain_keys(child) for child in tree.children]), keys=keys)


class _Opener:
    """Takes apart what a function lets out."""

    def __init__(self, outside: Mapping[int, Any], add: Callable[[Any], None]) -> None:
        self.outside, self.add = outside, add
        self.numbers: dict[int, int] = {}  # of objects that are made, by id
        self.held: list[Any] = []  # and the objects, whose ids no others may get
        self.nests: dict[int, TreeSpec | None] = {}  # of lists, dictionaries and records, by number; None: unfinished
        self.modules = 0  # layers that are being taken apart
        self.shared: dict[int, int] = {}  # of structures of these that come again, by id: their numbers

    def opened(self, value: Any) -> TreeSpec:
        """The structure of a value, whose leaves are added."""
        is_outside = id(value) in self.outside and type(value) is not tuple
        found = None if is_outside else taken_apart(value)
        if found is not None:
            return self._nest(value, *found)
        is_parameter = self.modules and not is_outside and _is_made_parameter(value)
        if not is_parameter and (is_outside or is_a(value, _WHOLE) or is_symbolic(value) or _is_of_captures(value)):
            if type(value) is types.FunctionType and not is_outside:
                _check_closure(value)
            self.add(value)
            return LEAF
        if id(value) in self.numbers:
            return Again(Again, (), (self.numbers[id(value)],))
        return self._made(value)

    def _nest(self, value: Any, kind: Any, parts: Iterable[Any], keys: tuple[Any, ...]) -> TreeSpec:
        if isinstance(value, tuple):
            return TreeSpec(kind, tuple([self.opened(part) for part in parts]), keys)
        known = self.numbers.get(id(value))
        if known is None:
            number = self._number(value)
            self.nests[number] = None
            made = self.nests[number] = TreeSpec(kind, tuple([self.opened(part) for part in parts]), keys)
            return made
        first = self.nests[known]
        if first is None:
            raise _not_again(value, "it holds itself")
        self.shared[id(first)] = known
        return Again(Again, (), (known,))

    def with_shared(self, tree: TreeSpec) -> TreeSpec:
        """The structure in which what comes again is kept when it is made."""
        if not self.shared:
            return tree
        number = self.shared.get(id(tree))
        made = replace(tree, children=tuple(map(self.with_shared, tree.children)))
        return made if number is None else Shared(Shared, (made,), (number,))

    def _number(self, value: Any) -> int:
        self.numbers[id(value)] = len(self.held)
        self.held.append(value)
        return len(self.held) - 1

    def _made(self, value: Any) -> TreeSpec:
        number = self._number(value)
        function, arguments, state, items, pairs = _reduced(value)
        parts = ((function, *arguments), state, list(items or ()), list(pairs or ()))
        self.modules += is_module(value)
        made = Made(Made, tuple([self.opened(part) for part in parts]), (number, state is not None))
        self.modules -= is_module(value)
        return made


def _is_made_parameter(value: Any) -> bool:
    """Whether a value is a parameter or buffer that the step has computed, and no argument."""
    trace: Any = state.trace
    is_traced = is_a(value, Tensor) and type(value) is not Tensor and value._array is None
    return is_traced and not any(value is given for given in trace.arguments)


def _parts_of_parameter(value: Any) -> tuple[Any, ...]:
    kind = type(value)
    slots = (name for cls in kind.__mro__[: kind.__mro__.index(Tensor)] for name in vars(cls).get("__slots__", ()))
    held = {**vars(value), **{name: getattr(value, name) for name in slots if hasattr(value, name)}}
    return kind, value.detach(), value._requires_grad, value._grad, held


def _parameter(kind: type, value: Any, requires_grad: bool, grad: Any, held: dict[str, Any]) -> Any:
    made = Tensor._make_subclass(kind, value, requires_grad)
    if grad is not None:
        made.grad = grad
    for name, part in held.items():
        setattr(made, name, part)
    return made


def _is_of_captures(value: Any) -> bool:
    """Whether an object is one of those with which captures do their own work, or what the results refuse anyway."""
    if type(value) is partial:
        return str(getattr(value.func, "__module__", "")).startswith("autojit.jit.")
    is_own = type(value).__module__.startswith("autojit.jit.")
    return is_own or hasattr(type(value), "__next__")


def _check_closure(function: types.FunctionType) -> None:
    """A function is one object for all calls: what the step computes cannot be in it."""
    for cell in function.__closure__ or ():
        held = cell_content(cell)
        if any(is_a(leaf, TracedNumber) or (is_a(leaf, Tensor) and leaf._array is None) for leaf in flatten(held)[0]):
            raise _not_again(function, "it closes over a tensor of the step")


def _reduced(value: Any) -> tuple[Any, ...]:
    if is_a(value, Tensor):
        return _parameter, _parts_of_parameter(value), None, None, None
    try:
        found = value.__reduce_ex__(4)
    except Exception as error:
        raise _not_again(value, str(error)) from None
    if isinstance(found, str):
        raise _not_again(value, "it is known by a name")
    return (*found, None, None, None)[:5]


def _not_again(value: Any, why: str) -> TraceError:
    return TraceError(
        "jit: the step makes an object that cannot be made again at every call, and returns or stores it",
        {"object": type(value).__qualname__, "because": why},
        "return what it holds and make it outside the step, or make it before and let the step use it",
    )


__all__ = ["let_out", "put_together", "with_plain_keys"]
