"""Objects that a step makes and lets out: every call makes others like them.

``return SimpleNamespace(loss=loss)``, ``self.last = Output(x)``, ``log.append({1, 2})``: eager mode makes a new object
at every call, and a capture runs once. So what the function lets out is taken apart by the protocol of ``copy`` and
``pickle`` (``__reduce_ex__``) into how it is made and what it holds, and put together again after every call from the
tensors and numbers of that call. What exists outside is handed on as it is.
"""

from __future__ import annotations

import types
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import BuiltinFunctionType, MethodType, UnionType
from typing import Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import TraceError
from autojit.core.sizes import is_symbolic
from autojit.core.source import here
from autojit.dispatch.refused_operands import left_of_batch
from autojit.ir.graph import Value
from autojit.jit.argument_nests import NestPath, found_at
from autojit.jit.arguments import BAKED
from autojit.jit.line_by_line import AskedIdentity
from autojit.jit.made_functions import give_function_state, holds_of_step, reduced
from autojit.jit.numpy_arrays import TracedArray, digits
from autojit.jit.observed_functions import is_module, is_users
from autojit.jit.places import defines, is_a, static_attribute
from autojit.jit.pytree import LEAF, TreeSpec, taken_apart
from autojit.jit.trace import Trace, foreign_error
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
    """Leaves on their way into a structure, and the objects that have been made of them by now.

    ``given``: the arguments of the call.
    """

    def __init__(self, leaves: Sequence[Any], given: object) -> None:
        self._rest = iter(leaves)
        self.given = given
        self.made: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._rest)


class Made(TreeSpec):
    """An object that is made again. ``keys``: its number, and whether it has a state; children: what it is made of.

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


class Array(TreeSpec):
    """An array of NumPy's, made of what the step has computed; ``keys``: its number, whether it is a scalar."""

    def _build(self, leaves: Leaves) -> Any:
        number, is_scalar = self.keys
        found = self.children[0]._build(leaves)
        array = found._array if is_a(found, Tensor) else found
        leaves.made[number] = made = array[()] if is_scalar else array
        return made


class Again(TreeSpec):
    """An object that has been made already; ``keys``: its number."""

    def _build(self, leaves: Leaves) -> Any:
        return leaves.made[self.keys[0]]


class Given(TreeSpec):
    """A list, dictionary or record that the caller has given; ``keys``: where it is in the arguments."""

    def _build(self, leaves: Leaves) -> Any:
        return found_at(leaves.given, self.keys)


def _give_state(made: object, given: Any) -> None:
    if type(made) is types.FunctionType:
        give_function_state(made, given)
        return
    is_as_it_is = type(given) is tuple and given[:1] == (_AsItIs,)
    if is_as_it_is:
        given = given[1]
    elif hasattr(made, "__setstate__"):
        made.__setstate__(given)
        return
    held, slots = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if held:
        made.__dict__.update(held)
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)


def put_together(tree: TreeSpec) -> Callable[[Sequence[Any], Any], Any]:
    """How a result is put together from its leaves and the call's ``(args, kwargs)``."""
    if _has(tree, Made | Shared | Array | Given):
        return lambda leaves, given: tree._build(Leaves(leaves, given))
    assemble = tree.assembler()
    return lambda leaves, given: assemble(leaves)


def hands_on(tree: TreeSpec) -> bool:
    """Whether a result has lists, dictionaries or records that the caller has given."""
    return _has(tree, Given)


def _has(tree: TreeSpec, kinds: type | UnionType) -> bool:
    return isinstance(tree, kinds) or any(_has(child, kinds) for child in tree.children)


def let_out(
    value: object, outside: Mapping[int, Any], given: Mapping[int, NestPath | None] | None = None
) -> tuple[list[Any], TreeSpec]:
    """``flatten`` of what a captured function lets out; ``outside``: what existed before, by id; ``given``: where
    copies of the caller's containers are in the arguments.

    Raises:
        TraceError: an object cannot be made again at every call.
    """
    opener = _Opener(outside, given or {})
    return opener.leaves, opener.with_shared(opener.opened(value))


class _Opener:
    """Takes apart what a function lets out."""

    def __init__(self, outside: Mapping[int, Any], given: Mapping[int, NestPath | None]) -> None:
        self.outside, self.given = ChainMap[int, Any]({}, outside), given  # type: ignore[arg-type]
        self.leaves: list[Any] = []
        self.numbers: dict[int, int] = {}  # of objects that are made, by id
        self.unmade: set[int] = set()  # those whose arguments are being taken apart
        self.held: list[Any] = []  # and the objects, whose ids no others may get
        self.nests: dict[int, TreeSpec | None] = {}  # of lists, dictionaries and records, by number; None: unfinished
        self.modules = 0  # layers that are being taken apart
        self.shared: dict[int, int] = {}  # of structures of these that come again, by id: their numbers

    def opened(self, value: object) -> TreeSpec:
        """The structure of a value, whose leaves are added."""
        if type(value) is TracedArray:
            return self._array(value)
        if id(value) in self.given:
            path = self.given[id(value)]
            if path is None:
                raise AskedIdentity(str(here()))
            return Given(Given, (), path)
        is_outside = id(value) in self.outside and type(value) is not tuple
        found = None if is_outside else taken_apart(value)
        if found is not None:
            return self._nest(value, *found)
        if id(value) in self.numbers:
            return self._again(value)
        parts = None if is_outside else reduced(value, self.outside)
        if parts is not None:
            return self._function(value, *parts)
        is_parameter = self.modules and not is_outside and _is_made_parameter(value)
        if not is_parameter and (is_outside or is_a(value, _WHOLE) or is_symbolic(value) or _is_of_captures(value)):
            if _is_one_for_all(value, is_outside) and holds_of_step(value, self.outside):
                raise _not_again(value, "it holds a tensor or a number of the step")
            return self._whole(value)
        return self._made(value)

    def _array(self, value: TracedArray) -> TreeSpec:
        if id(value) in self.numbers:
            return Again(Again, (), (self.numbers[id(value)],))
        self.leaves.append(value)
        return Array(Array, (LEAF,), (self._number(value), value.is_scalar))

    def _whole(self, value: object) -> TreeSpec:
        self.leaves.append(value)
        return LEAF

    def _again(self, value: object) -> TreeSpec:
        number = self.numbers[id(value)]
        if number in self.unmade:
            raise _not_again(value, "it holds itself")
        return Again(Again, (), (number,))

    def _function(self, value: object, function: object, arguments: tuple[Any, ...], state: object) -> TreeSpec:
        """What ``reduced`` gives. What cannot be made again, and holds nothing of the step, is one for all calls."""
        if is_a(value, MethodType | BuiltinFunctionType):  # which are told apart by what they are of
            made = self.opened((function, *arguments))
            return Made(Made, (made, *map(self.opened, (None, [], []))), (-1, False))
        kept = len(self.leaves), dict(self.numbers), set(self.unmade)
        try:
            return self._made_of(value, function, arguments, state)
        except TraceError:
            if holds_of_step(value, self.outside):
                raise
            del self.leaves[kept[0] :]
            self.numbers, self.unmade = kept[1:]
            return self._whole(value)

    def _nest(self, value: object, kind: object, parts: Iterable[Any], keys: tuple[Any, ...]) -> TreeSpec:
        if isinstance(value, tuple):
            if id(value) in self.outside:  # and what is in it is, though the function has not looked there
                self.outside.update((id(part), part) for part in value)
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

    def _number(self, value: object) -> int:
        self.numbers[id(value)] = len(self.held)
        self.held.append(value)
        return len(self.held) - 1

    def _made(self, value: object) -> TreeSpec:
        function, arguments, state, items, pairs = _reduced(value)
        self.modules += is_module(value)
        made = self._made_of(value, function, arguments, state, list(items or ()), list(pairs or ()))
        self.modules -= is_module(value)
        return made

    def _made_of(
        self, value: object, function: object, arguments: tuple[Any, ...], state: object, *more: object
    ) -> TreeSpec:
        number = self._number(value)
        self.unmade.add(number)
        children = [self.opened((function, *arguments))]
        self.unmade.discard(number)
        children += [self.opened(part) for part in (state, *(more or ([], [])))]
        return Made(Made, tuple(children), (number, state is not None))


def _is_made_parameter(value: object) -> bool:
    """Whether a value is a parameter or buffer that the step has computed, and no argument."""
    trace: Any = state.trace
    is_traced = is_a(value, Tensor) and type(value) is not Tensor and value._array is None
    return is_traced and not any(value is given for given in trace.arguments)


def _parts_of_parameter(value: Tensor) -> tuple[Any, ...]:
    kind = type(value)
    slots = (name for cls in kind.__mro__[: kind.__mro__.index(Tensor)] for name in vars(cls).get("__slots__", ()))
    held = {**vars(value), **{name: getattr(value, name) for name in slots if hasattr(value, name)}}
    return kind, value.detach(), value._requires_grad, value._grad, held


def _parameter(
    kind: type[Tensor], value: Tensor, requires_grad: bool, grad: Tensor | None, held: dict[str, Any]
) -> Tensor:
    made = Tensor._make_subclass(kind, value, requires_grad)
    if grad is not None:
        made.grad = grad
    for name, part in held.items():
        setattr(made, name, part)
    return made


def _is_of_captures(value: object) -> bool:
    """Whether an object is one of those with which captures do their own work, or what the results refuse anyway."""
    if type(value) is partial:
        return str(getattr(value.func, "__module__", "")).startswith("autojit.jit.")
    is_own = type(value).__module__.startswith("autojit.jit.")
    return is_own or defines(type(value), "__next__")


def _is_one_for_all(value: object, is_outside: bool) -> bool:
    """Whether all calls have the same object, though a step has made it: a class, or a compiled function."""
    if is_a(value, type):
        return "<locals>" in value.__qualname__
    return not is_outside and type(value).__qualname__ == "JitFunction"


def _reduced(value: object) -> tuple[Any, ...]:
    if is_a(value, Tensor):
        return _parameter, _parts_of_parameter(value), None, None, None
    try:
        found = value.__reduce_ex__(4)
    except Exception as error:
        raise _not_again(value, str(error)) from None
    if isinstance(found, str):
        raise _not_again(value, "it is known by a name")
    function, arguments, state, items, pairs = (*found, None, None, None)[:5]
    if any(is_users(static_attribute(type(value), name)) for name in ("__getstate__", "__setstate__")):
        return function, arguments, (_AsItIs, object.__getstate__(value)), items, pairs
    return function, arguments, state, items, pairs


class _AsItIs:
    """Marks the state of an object whose class has a form of its own for files: calls have it as it is."""


def _not_again(value: object, why: str) -> TraceError:
    return TraceError(
        "jit: the step makes an object that cannot be made again at every call, and returns or stores it",
        {"object": type(value).__qualname__, "because": why},
        "return what it holds and make it outside the step, or make it before and let the step use it",
    )


def _plain_key(key: object) -> Any:
    if type(key) is TracedArray:
        return digits(key)
    return key.concrete() if isinstance(key, TracedNumber) else key


def with_plain_keys(tree: TreeSpec) -> TreeSpec:
    """The structure of results whose dictionaries have no traced numbers as keys: the step holds for these digits."""
    keys = tuple(map(_plain_key, tree.keys))
    return replace(tree, children=tuple([with_plain_keys(child) for child in tree.children]), keys=keys)


def check_outputs(outputs: Sequence[Any], trace: Trace) -> None:
    """TraceError for outputs that a later call could not give again."""
    known: set[Value] | None = None
    for leaf in outputs:
        if defines(type(leaf), "__next__"):
            raise TraceError(
                "jit: the function returned or stored a generator or iterator, which can be walked only once",
                {"returned": type(leaf).__name__},
                "return a list or a tuple",
            )
        if isinstance(leaf, TracedNumber) and leaf.trace is not trace:
            leaf._check()
        if isinstance(leaf, Tensor) and leaf._array is None and leaf._storage is None:
            if known is None:
                known = {v for node in trace.builder.nodes for v in node.outputs} | set(trace.builder.inputs)
            if leaf._value not in known:
                if leaf._value is None:
                    raise left_of_batch({"returned": leaf})
                raise foreign_error(leaf._value, trace)
