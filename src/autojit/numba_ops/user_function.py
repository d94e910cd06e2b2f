"""The functions that ops refer to by key, with their derivatives.

An op in a graph holds a key, not a function, so that ops stay plain data: equal keys are equal functions. Derivatives
are made when they are first asked for: from the function's own text, or from what the user gave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.codegen.numba_text.definitions import needs_host
from autojit.codegen.numba_text.loop import write_loop
from autojit.codegen.numba_text.scalar_function import ScalarFunction
from autojit.codegen.numba_text.tangents import partial
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.errors import DifferentiationError, UsageError
from autojit.core.locks import new_lock
from autojit.runtime.bodies import load_written
from autojit.runtime.callbacks import Body

if TYPE_CHECKING:
    from numpy.typing import NDArray

FUNCTIONS: dict[str, UserFunction] = {}
_lock = new_lock()


def failure(name: str, failures: Sequence[Exception], number: int) -> Exception:
    """The exception of a function to raise for a failure's number, a fresh one each time."""
    if not 1 <= number <= len(failures):
        return UsageError(f"{name}: the function failed", {"number": number})
    known = failures[number - 1]
    error = type(known)(*known.args)
    error.add_note(f"raised by {name}, an op made by aj.op")
    return error


class UserFunction:
    """A linked function under its name, with its exceptions and derivatives.

    Args:
        name: what messages call it.
        code: its text.
        failures: the exceptions it raises, by number less one.
        given: its partial derivatives by operand, None where one is zero; the whole is None to make them here.
    """

    def __init__(
        self,
        name: str,
        code: ScalarFunction,
        failures: tuple[Exception, ...],
        given: tuple[UserFunction | None, ...] | None = None,
    ) -> None:
        self.name = name
        self.code = code
        self.failures = failures
        self.given = given
        self.key = _key(name, code, given)
        self._partials: dict[int, UserFunction | DifferentiationError | None] = {}
        self._loops: dict[object, Any] = {}

    @cached_property
    def needs_host(self) -> bool:
        """See `needs_host`."""
        return needs_host(self.code.code)

    def partial(self, operand: int) -> UserFunction | None:
        """The partial derivative with respect to an operand; None where it is zero everywhere.

        Raises:
            DifferentiationError: there is none.
        """
        if self.given is not None:
            return self.given[operand]
        with _lock:
            found = self._partials.get(operand, self)
            if found is self:
                found = self._partials[operand] = self._differentiated(operand)
        if isinstance(found, DifferentiationError):
            raise found
        return found

    def depends_on(self, operand: int) -> bool:
        """Whether there is a derivative, or an error to raise where it is asked for."""
        try:
            return self.partial(operand) is not None
        except DifferentiationError:
            return True

    def _differentiated(self, operand: int) -> UserFunction | DifferentiationError | None:
        try:
            code = partial(self.code, operand)
        except DifferentiationError as error:
            return error
        return None if code is None else registered(UserFunction(f"{self.name}.d{operand}", code, self.failures))

    def failure(self, number: int) -> Exception:
        """See ``failure``."""
        return failure(self.name, self.failures, number)

    def evaluate(self, op: Any, arrays: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        """Result ``op.output`` for arrays broadcast against each other.

        Raises:
            what the function raises.
        """
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        result = np.empty(shape, op.dtype.numpy)
        singles = tuple(a.size == 1 for a in arrays)
        held = [
            np.require(a if is_single else np.broadcast_to(a, shape), requirements=("C", "A"))
            for a, is_single in zip(arrays, singles, strict=True)
        ]
        code = self._loop(op, tuple((dtype_of_numpy(a.dtype), s) for a, s in zip(arrays, singles, strict=True)))
        length, words = np.array([result.size], np.int64), np.zeros(2, np.int64)
        pointers = [a.ctypes.data for a in (*held, result, length, words)]
        table = np.array([*pointers, 0], np.uint64)
        Body(code)(table.ctypes.data, 0, 0)
        if words[0]:
            raise self.failure(int(words[1]))
        return result

    def _loop(self, op: Any, operands: tuple[tuple[DType, bool], ...]) -> int:
        """Address of the loop over arrays of these dtypes."""
        key = (op.output, op.dtype, operands)
        found = self._loops.get(key)
        if found is None:
            found = self._loops[key] = load_written(
                lambda kernel: write_loop(kernel, op, self.code, op.output, operands, op.dtype)
            )
        return int(found.address("kernel"))


def _key(name: str, code: ScalarFunction, given: tuple[UserFunction | None, ...] | None) -> str:
    """Equal for functions of equal text, derivatives and messages."""
    derivatives = None if given is None else [None if f is None else f.key for f in given]
    text = repr((code.symbol, code.results, derivatives, code.code.failures))
    return f"{name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def registered(function: UserFunction) -> UserFunction:
    """The function under its key: the first one that had it."""
    with _lock:
        return FUNCTIONS.setdefault(function.key, function)


def find(key: str) -> UserFunction:
    """The function of a key; ValueError when this process has made none (a graph text of another process)."""
    found = FUNCTIONS.get(key)
    if found is None:
        raise ValueError(f"no op of this process refers to a function {key!r}: call aj.op first")
    return found
