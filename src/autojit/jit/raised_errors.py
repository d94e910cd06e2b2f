"""Errors that a captured function raises: what they carry of the step is what eager mode's would carry.

A call that raises is traced up to there and compiles nothing. Its numbers and tensors are known, and take the place of
the stand-ins in the error, in those it came from, and in whatever they hold; an argument or a tensor outside is handed
on itself, unless the function has changed it, which is taken back: then the error has a copy. Where an op before that
refuses its values, its error is the one that comes up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from autojit.core.device import CPU, space_at
from autojit.core.errors import TraceError
from autojit.core.sizes import is_symbolic
from autojit.dispatch.dispatch import value_of
from autojit.jit.arguments import ArgumentLeaf
from autojit.jit.caught_errors import may_raise
from autojit.jit.foreign_calls import TELLING
from autojit.jit.late_values import at_once, copied_as
from autojit.jit.places import attributes_of, cell_content, is_a
from autojit.jit.trace import Trace
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.failures import told
from autojit.tensor.tensor import Tensor, storage_of, type_of, wrap

_PLAIN = (str, bytes, int, float, complex, type, ModuleType, np.ndarray)


@contextmanager
def of_values(trace: Trace, arguments: Sequence[ArgumentLeaf], leaves: Sequence[Any]) -> Iterator[None]:
    """Errors of the captured function that runs inside carry values."""
    try:
        yield
    except TraceError:
        raise
    except BaseException as error:
        if not (trace.is_compared or type(error).__module__.startswith("autojit.jit.")):
            refusal = _refusal(trace) if isinstance(error, Exception) else None
            if refusal is not None:
                refusal.__context__ = None
                raise refusal from None
            values = _Values(trace, arguments, leaves)
            values.of(error)
            trace.tell = list(_told_before(trace, values))
        raise


def _told_before(trace: Trace, values: _Values) -> Iterator[Callable[[], Any]]:
    """What a call has printed, logged and warned of when it raises, as calls with the values of this call."""
    for call in trace.told:
        if getattr(call.function, "func", call.function) in TELLING:
            args = [values.of(at_once(value)) for value in call.args]
            yield partial(call.function, *args, **{k: values.of(at_once(value)) for k, value in call.kwargs.items()})


def _refusal(trace: Trace) -> Exception | None:
    """The error of an op recorded before that refuses its values: a step would have come no further."""
    for node in tuple(trace.builder.nodes):
        if may_raise(node.op, node.inputs):
            try:
                trace.evaluate(node.outputs[0])
            except Exception as error:
                return told(error, node)
    return None


class _Values:
    """Puts values in the place of stand-ins."""

    def __init__(self, trace: Trace, arguments: Sequence[ArgumentLeaf], leaves: Sequence[Any]) -> None:
        self.trace = trace
        pairs = zip(arguments, leaves, strict=True)
        self.given = {id(leaf.shell): (leaf.value, given) for leaf, given in pairs if leaf.kind == "tensor"}
        self.found: dict[int, tuple[Any, Any]] = {}  # by id: what has been met, and what stands there instead

    def of(self, value: object) -> Any:
        """What a value becomes: containers and objects stay, with other contents."""
        kind = type(value)
        if is_a(value, TracedNumber):
            is_mine = value.trace is self.trace
            return value.kind(self.trace.evaluate(value_of(value.tensor)).item()) if is_mine else value
        if is_symbolic(value):
            return int(value)
        if value is None or issubclass(kind, _PLAIN):
            return value
        known = self.found.get(id(value))
        if known is None:
            self.found[id(value)] = value, value
            self.found[id(value)] = known = value, self._made(value)
        return known[1]

    def _made(self, value: object) -> Any:
        if is_a(value, Tensor):
            return self._of_tensor(value)
        if is_a(value, tuple):
            return self._of_tuple(value)
        if is_a(value, list | deque):
            for place, part in enumerate(value):
                if (new := self.of(part)) is not part:
                    value[place] = new
        elif is_a(value, dict):
            for key, part in tuple(dict.items(value)):
                if (new := self.of(part)) is not part:
                    dict.__setitem__(value, key, new)
        elif is_a(value, partial):
            parts = self.of(value.func), self.of(value.args), self.of(value.keywords)
            is_same = all(a is b for a, b in zip(parts, (value.func, value.args, value.keywords), strict=True))
            return value if is_same else type(value)(parts[0], *parts[1], **parts[2])
        elif is_a(value, MethodType):
            self.of(value.__self__)
        elif is_a(value, FunctionType):
            self._of_function(value)
        else:
            self._of_object(value)
        return value

    def _of_tensor(self, t: Tensor) -> Tensor:
        first, itself = self.given.get(id(t), (None, t))
        if t._array is not None:
            first = self.trace.lifted(storage_of(t).array, is_first=True)
            if first is None or first is self.trace.lifted(storage_of(t).array):
                return t
        elif first is not None and value_of(t) is first:
            return itself  # type: ignore[no-any-return]
        if t._array is None and t._value is None:  # an example of a batch
            return t
        try:
            found = np.array(self.trace.evaluate(value_of(t)))
        except TraceError:  # of another capture, or of a body that is under way
            return t
        place = type_of(t).device
        return copied_as(t)(wrap(found if place == CPU else space_at(place).copied_in(found)))

    def _of_tuple(self, value: tuple[Any, ...]) -> Any:
        parts = [self.of(part) for part in value]
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)

    def _of_function(self, function: FunctionType) -> None:
        for cell in function.__closure__ or ():
            held = cell_content(cell)
            if (new := self.of(held)) is not held:
                cell.cell_contents = new
        for name in ("__defaults__", "__kwdefaults__"):
            held = getattr(function, name)
            if (new := self.of(held)) is not held:
                setattr(function, name, new)

    def _of_object(self, value: object) -> None:
        """Its own attributes; of an error also those that its class keeps: ``args``, ``__cause__``, ``code``."""
        self.of(attributes_of(value))
        is_error = is_a(value, BaseException)
        for name, member in _members(type(value)).items():
            if type(member) is MemberDescriptorType or (is_error and type(member) is GetSetDescriptorType):
                with suppress(AttributeError, TypeError):
                    held = member.__get__(value)
                    if (new := self.of(held)) is not held:
                        setattr(value, name, new)


def _members(kind: type) -> Mapping[str, Any]:
    """What a class and its bases have under names that are not tracebacks or tables."""
    found = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    return {name: member for name, member in found.items() if name not in ("__traceback__", "__dict__", "__weakref__")}
