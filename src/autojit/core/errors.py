"""Errors that name the op, the operands, the place and the fix.

Every error derives from the exception type torch raises in the same situation, so ``except RuntimeError`` written for
torch keeps working.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from autojit.core.size_recorder import asked
from autojit.core.source import UNKNOWN, SourceLocation, relay, user_call


def explain_error(what: str, facts: Mapping[str, object] | None = None, fix: str = "") -> str:
    """Compose the message: one line of what, aligned facts, the fix."""
    rows = [(name, _fact(value)) for name, value in (facts or {}).items()]
    if fix:
        rows.append(("fix", fix))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([what, *(f"  {name:<{width}}  {text}" for name, text in rows)])


def _fact(value: object) -> str:
    described = getattr(type(value), "describe", None)  # an object of the user's may answer every name
    return str(described(value)) if callable(described) else str(value)


MOST_OPERANDS = 6  # a message about a list of a thousand tensors shows the first ones

_operand_types: tuple[type, ...] = ()


def register_operand_type(kind: type) -> None:
    """Arguments of this type (it has ``describe``) are named in messages."""
    global _operand_types
    _operand_types = (*_operand_types, kind)


class Position(NamedTuple):
    """Where an element is that an error is about."""

    place: tuple[int, ...]
    named: str

    def in_shape(self, shape: Sequence[int]) -> Position:
        """The position of the same element, in row-major order, in a tensor of this shape."""
        (rest,), place = self.place, []
        for extent in reversed(shape):
            rest, index = divmod(rest, extent)
            place.append(index)
        return Position(tuple(reversed(place)), self.named)

    def __str__(self) -> str:
        return f"{self.place} of {self.named}"


class WideIntegerError(Exception):
    """A whole number that Python computes in a captured step does not fit into the 64 bits that the step has for it.

    Nobody sees it: the call runs line by line.
    """


_MODULE = "  module    "  # as the facts of a message are written


class AutojitError(Exception):
    """Base of the errors below; never raised itself.

    The message is completed with what the raising place does not know: the user's line and the function called there,
    its operands, and the general fix of the error's kind (``general_fix``) when there is no better one.
    """

    general_fix = ""
    names_operands = False
    is_placed = False  # "at" is the line of the op that failed, as its node says

    def __init__(self, what: str, facts: Mapping[str, object] | None = None, fix: str = "", op: str = "") -> None:
        """Args:
        what: the message.
        facts: what it is about, by name.
        fix: what to do.
        op: the name of the op that says it, where the user may have another name for what they called; the message
            begins with theirs.
        """
        found = dict(facts or {})
        call = None if "at" in found else user_call()
        if call is not None:
            source, function, arguments = call
            if self.names_operands:
                shown = {_fact(value) for value in found.values()}
                more = ((name, value) for name, value in _operands(arguments) if name not in found)
                found.update((name, value) for name, value in more if _fact(value) not in shown)
            found["at"] = f"{source}, calling {function}()"
        self.what, self.op = what, op
        self.facts, self.fix = dict(facts or {}), fix or self.general_fix
        begin = f"{op if call is None else call[1]}: " if op else ""
        super().__init__(explain_error(begin + what, found, self.fix))
        if asked.recorder is not None:
            asked.recorder.note_error()

    def found_at(self, place: SourceLocation, op: str) -> Self:
        """The same error as it is told when a compiled step meets it: of the user's line and of what was called there.

        Args:
            place: where the op was called, as its node says; nothing changes where that, or the error, was told before.
            op: the name of the op, which the message may begin with; the user's word for it takes its place.
        """
        if self.is_placed:
            return self
        said = f"{self.op}: {self.what}" if self.op else self.what
        if place is UNKNOWN:
            return self._again(said, self.facts, "") if self.op else self
        said = re.sub(rf"^{re.escape(op)}(\(\))?:", f"{place.callee or op}:", said)
        told = f"{place}, calling {place.callee}()" if place.callee else str(place)
        made = self._again(said, {**self.facts, "at": told}, "")
        made.is_placed = True
        if place.part.root is not None:
            made.in_module(place.part.module, place.part.kind)
        return made

    def in_module(self, path: str, kind: str) -> None:
        """Note the module whose call failed, by its path in the outermost one, and its class."""
        notes: list[str] = self.__dict__.setdefault("__notes__", [])
        notes[:] = [note for note in notes if not note.startswith(_MODULE)]
        notes.append(f"{_MODULE}{path} ({kind})" if path and path != kind else f"{_MODULE}{kind}")

    def of_call(self, op: str) -> Self:
        """The same error of an op that was computed at once: what the user called stands where the op's name did."""
        begin = f"{op}: "
        is_named = not self.is_placed and not self.op and self.what.startswith(begin)
        return self._again(self.what[len(begin) :], self.facts, op) if is_named else self

    def with_facts(self, facts: Mapping[str, object]) -> Self:
        """The same error, with more facts."""
        return self._again(self.what, {**facts, **self.facts}, self.op)

    def in_round(self, number: int) -> Self:
        """The same error, with the round of the loop in which it came up; that of an inner loop comes after it."""
        inner = self.facts.get("round")
        return self._again(self.what, {**self.facts, "round": rounds_text((number,), inner)}, self.op)

    def of_shape(self, shape: Sequence[int]) -> Self:
        """The same error, reported of an operand of this shape: the user's, whose elements in order were looked at."""
        position = self.facts.get("position")
        if not isinstance(position, Position) or len(position.place) != 1:
            return self
        return self._again(self.what, {**self.facts, "position": position.in_shape(shape)}, self.op)

    def _again(self, what: str, facts: Mapping[str, object], op: str) -> Self:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)  # whatever its kind knows, and was set since
        AutojitError.__init__(made, what, facts, self.fix, op)
        if "__notes__" in self.__dict__:
            made.__dict__["__notes__"] = list(self.__dict__["__notes__"])
        return made


def rounds_text(rounds: Sequence[int], inner: object = None) -> str:
    """The rounds of loops, outermost first: ``3``, ``3, in it 1``."""
    return ", in it ".join([*map(str, rounds), *([] if inner is None else [str(inner)])])


def _operands(arguments: Mapping[str, object]) -> list[tuple[str, object]]:
    """The tensors among a call's arguments, also those in a list, by name."""
    found: list[tuple[str, object]] = []
    for name, value in arguments.items():
        if isinstance(value, _operand_types):
            found.append((name, value))
        elif isinstance(value, list | tuple):
            found += [(f"{name}[{k}]", v) for k, v in enumerate(value) if isinstance(v, _operand_types)]
    return found[:MOST_OPERANDS]


class UsageError(AutojitError, RuntimeError):
    """A function was asked for something it cannot do (torch raises a plain RuntimeError)."""

    names_operands = True


class ShapeError(AutojitError, RuntimeError):
    """Shapes of operands do not fit together."""

    names_operands = True
    general_fix = "make the shapes agree: reshape, expand, transpose or slice an operand"


class AxisError(AutojitError, IndexError):
    """An axis is out of range (torch raises IndexError)."""

    names_operands = True
    general_fix = "count axes from 0, or backwards from -1"


class IndexOutOfRangeError(AutojitError, IndexError, RuntimeError):
    """An index is out of range (torch raises IndexError when indexing, RuntimeError from gather and scatter)."""

    names_operands = True
    general_fix = "check the indices against the extent of the axis they pick from"


class IndexingError(AutojitError, IndexError):
    """An indexing expression does not fit the tensor (torch raises a plain IndexError)."""

    names_operands = True
    general_fix = "index with integers, slices, None, ... and tensors of integers or booleans, one per axis"


class OutOfMemoryError(AutojitError, RuntimeError, MemoryError):
    """There is no memory for a result or for what a step keeps in between (torch raises RuntimeError)."""

    names_operands = True
    general_fix = "make the operands smaller, work in parts, or free tensors that are no longer needed"


class DTypeError(AutojitError, RuntimeError):
    """An op does not take the dtype."""

    names_operands = True
    general_fix = "convert the operand: x.to(dtype)"


class DeviceError(AutojitError, RuntimeError):
    """Operands are on different devices, or the device is absent."""

    general_fix = "use device='cpu'"


class ArgumentError(AutojitError, ValueError):
    """A parameter has an impossible value."""

    names_operands = True


class ArgumentKindError(AutojitError, TypeError):
    """An argument is not of the kind that its parameter takes (torch raises TypeError)."""

    names_operands = True


def out_of_memory(error: MemoryError) -> OutOfMemoryError:
    """The error of the user's call for memory that NumPy could not have."""
    if isinstance(error, OutOfMemoryError):
        return error
    call = user_call()
    return OutOfMemoryError(f"{'autojit' if call is None else call[1]}: out of memory, {error}")


def too_large(shape: Sequence[int], error: ValueError | None = None) -> Exception:
    """The error of a shape that no array can have; another error of NumPy's is given back."""
    if len(shape) > 64:
        return UsageError(f"only tensors with up to 64 dims are supported, but got {len(shape)}")
    if error is not None and not ("too big" in str(error) or "Maximum allowed dimension" in str(error)):
        return error
    return UsageError(f"{'Storage size' if all(shape) else 'Stride'} calculation overflowed with sizes={list(shape)}")


def out_of_memory_in_step(error: MemoryError, place: SourceLocation, op: str, result: object) -> OutOfMemoryError:
    """The error of an op of a step, for the memory of a result."""
    return OutOfMemoryError(f"{op}: out of memory, {error}", {"result": result}).found_at(place, op)


relay(AutojitError.__init__)  # a function that only hands its failure on is spoken of, not what makes the error
relay(out_of_memory)
relay(too_large)


def int_expected(value: object, name: str = "a size") -> ArgumentKindError:
    """The error for something that is where an integer should be."""
    return ArgumentKindError(f"{name} must be int, not {type(value).__name__}", fix="convert it: int(n)")


def tensors_expected(function: str) -> ArgumentKindError:
    """The error for one tensor that is where several should be."""
    return ArgumentKindError(
        f"{function}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor",
        fix=f"give a list: {function}([x, y])",
    )


def tensor_expected(value: object) -> ArgumentKindError:
    """The error for something that is where a tensor should be: it names the argument of the user's call."""
    call = user_call()
    kind, name, found = type(value).__name__, "op", []
    if call is not None:
        _, name, arguments = call
        found = [(k, n) for k, (n, given) in enumerate(arguments.items(), 1) if given is value]
    which = f"argument '{found[0][1]}' (position {found[0][0]})" if found else "an operand"
    return ArgumentKindError(f"{name}(): {which} must be Tensor, not {kind}", fix="make it a tensor: tensor(x)")


class UnsupportedError(AutojitError, NotImplementedError):
    """An op has no form for operands of this kind."""


class UnsupportedDTypeError(DTypeError, UnsupportedError):
    """An op has no form for the dtype (torch raises NotImplementedError, which is a RuntimeError)."""


class DifferentiationError(AutojitError, RuntimeError):
    """A derivative was asked for where there is none, or its graph is gone."""


class TraceError(AutojitError, RuntimeError):
    """The program under ``@aj.jit`` did something a trace cannot hold."""


class CompileError(AutojitError, RuntimeError):
    """Lowering failed; carries the op and the graph text for a report."""


class UndecidedSizeError(CompileError):
    """The compiler was asked something about an open size that has no one answer for all its values."""


class HostDecides(CompileError):
    """A device cannot decide by itself which branch, or whether another turn, follows: the host takes part in it."""


class SpecializeSize(CompileError):
    """What is compiled cannot leave a size open; ``symbols`` names those it needs fixed, ``reason`` says what for."""

    def __init__(self, symbols: tuple[str, ...], reason: str) -> None:
        self.symbols = symbols
        self.reason = reason
        super().__init__("a size must be fixed", {"sizes": ", ".join(symbols), "reason": reason})


class VerificationError(AutojitError, AssertionError):
    """A graph breaks an invariant of the IR: a defect of autojit itself."""


class OldNameWarning(DeprecationWarning, FutureWarning):
    """An argument is given under a name, or with a meaning, that torch has given up."""
