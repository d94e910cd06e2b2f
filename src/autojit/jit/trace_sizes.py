"""Open sizes during a capture: what Python asks about them, and sizes that the step itself counts.

A capture answers questions about the sizes of arguments by the call at hand and notes the answers as guards. How many
elements a mask chooses is known only when the step runs: such a count is a symbol of its own ("u0"), taken for a
general size (so it is neither 0 nor 1 where autojit looks for special cases); what Python decides on it splits the
trace, like any number of the step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from autojit.core import size_expressions as expressions
from autojit.core.device import CPU
from autojit.core.dtypes import DType, int64
from autojit.core.size_expressions import Expression
from autojit.core.size_recorder import SizeGuard
from autojit.core.sizes import expression_of, hint_of, size
from autojit.core.source import SourceLocation, here
from autojit.core.structure import structure
from autojit.dispatch.on_device import moved
from autojit.functions.comparison import maximum, minimum, where
from autojit.functions.elementwise import floor_divide, remainder
from autojit.ir.concrete import concrete, symbols_of
from autojit.ir.graph import Value
from autojit.ir.op import Op
from autojit.jit.number_ranges import ANY, INT64, Range
from autojit.jit.trace_part import TracePart
from autojit.jit.traced_number import TracedNumber
from autojit.ops.counted_positions import NO_SIZE, Counting, Extent, PackedPositions, Positions, negative_size
from autojit.ops.shape import Slice
from autojit.ops.sources import Iota, SizeValue
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor, wrap_value

_LARGEST = 2.0**47  # bytes that a process can address
TYPICAL_COUNT = 29  # the hint of a size that is a number: no size that programs have by themselves
_FUNCTIONS = {"quotient": floor_divide, "remainder": remainder, "minimum": minimum, "maximum": maximum}


class TraceSizes(TracePart):
    """The part of a trace that knows sizes (``core.size_recorder.Recorder``).

    Args:
        sizes: the values of the arguments' open sizes in this call.
        are_counts_fixed: what the step counts is a number that Python decides on, instead of an open size.
        shift: added to the hints of counts, for a second capture that is compared with the first.
    """

    def __init__(self, sizes: Mapping[str, int], are_counts_fixed: bool = False, shift: int = 0) -> None:
        self.sizes: dict[str, int] = dict(sizes)
        self.are_counts_fixed = are_counts_fixed
        self.shift = shift
        self.size_guards: list[tuple[SizeGuard, SourceLocation]] = []
        self.pinned: dict[Expression, SourceLocation] = {}  # sizes whose digits Python has seen: where
        self.numbers = itertools.count()  # of counted sizes, also those of bodies that are captured inside
        self.counted: dict[str, tuple[Value, Tensor]] = {}  # positions that a mask chooses, and how many
        self.has_failed = False  # whether autojit raised an error, which the function may have caught
        self._digits: dict[str, Expression] = {}  # of counted sizes, as far as Python has seen them
        self._decided: dict[tuple[Expression, str], bool] = {}  # of expressions of counted sizes
        self._defining: dict[object, Value] = {}  # what defines counted sizes, by its operand
        self._alike: dict[Value, Value] = {}  # values that were computed before: the first ones
        self._made: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = {}
        self._compared = 0  # nodes that these know

    @property
    def is_compared(self) -> bool:
        """Whether this is such a second capture: its sizes are not a call's, and it has no values."""
        return self.shift != 0

    # -- questions

    def decide_size(self, expression: Expression, relation: str) -> bool:
        """See ``core.size_recorder.Recorder``."""
        expression = expression.substitute(self._digits) if self._digits else expression
        if self._is_counted(expression):
            if relation == "==" and expression.terms[0][1] < 0:
                expression = expressions.scale(expression, -1)
            known = self._decided.get((expression, relation))
            if known is None:
                number = self._number_of(expression)
                known = bool(number == 0) if relation == "==" else bool(number < 0)
                self._decided[expression, relation] = known
            return known
        value = expression.evaluate(self.sizes)
        outcome = value == 0 if relation == "==" else value < 0
        if expression.constant is not None:
            return outcome
        guard = SizeGuard(expression, relation, outcome)
        if all(guard != known for known, _ in self.size_guards):
            self.size_guards.append((guard, here()))
        return outcome

    def size_digits(self, expression: Expression) -> int:
        """See ``core.size_recorder.Recorder``."""
        for name in expression.symbols():
            if name in self.counted and name not in self._digits:
                number = self._whole_number(self.counted[name][1])
                self._digits[name] = expressions.constant(int(number))
        expression = expression.substitute(self._digits) if self._digits else expression
        if expression.constant is None:
            self.pinned.setdefault(expression, here())
        return expression.evaluate(self.sizes)

    def size_number(self, of: int) -> TracedNumber:
        """See ``core.size_recorder.Recorder``."""
        return self._number_of(expression_of(of))

    def note_error(self) -> None:
        """See ``core.size_recorder.Recorder``."""
        self.has_failed = True

    def size_value(self, of: int, dtype: DType) -> Value:
        """An open size as a number of a dtype."""
        expression = expression_of(of)
        if not self._is_counted(expression):
            return self.apply(SizeValue(of, dtype), ())[0]
        with grad_mode(False):
            number = self._number_of(expression).tensor.to(dtype)
        assert number._value is not None
        return number._value

    def _is_counted(self, expression: Expression) -> bool:
        return bool(self.counted) and any(name in self.counted for name in expression.symbols())

    def _whole_number(self, tensor: Tensor, span: Range = ANY) -> TracedNumber:
        trace: Any = self  # all of the trace, whose part this class is
        return TracedNumber(trace, tensor, int, span)

    def _number_of(self, expression: Expression) -> TracedNumber:
        if not self._is_counted(expression):
            hints = {**dict.fromkeys(expression.symbols(), expressions.LEAST), **self.sizes}  # others: counted outside
            known = size(expression.evaluate(hints), expression)
            value = self.apply(SizeValue(known, int64), ())[0]
            least = expression.lower_bound()
            span = INT64 if least is None else Range(float(least), _LARGEST)
            return self._whole_number(wrap_value(value), span)
        total: Any = 0
        for monomial, coefficient in expression.terms:
            product: Any = coefficient
            for atom in monomial:
                product = product * self._atom_number(atom)
            total = total + product
        number: TracedNumber = total
        return number

    def _atom_number(self, atom: expressions.Atom) -> Any:
        if atom.kind == "symbol":
            name = atom.operands[0]
            if name in self.counted:
                return self._whole_number(self.counted[name][1])
            return self._number_of(expressions.symbol(*atom.operands))
        a, b = (self._number_of(operand).tensor for operand in atom.operands)
        with grad_mode(False):
            return self._whole_number(_FUNCTIONS[atom.kind](a, b))

    # -- sizes that the step counts

    def true_positions(self, mask: Value) -> Value:
        """The positions (row-major) of a mask's true elements; the same for masks computed alike."""
        alike = self._first_alike(mask)
        found = self._defining.get(alike)
        if found is None:
            found = self._defining[alike] = self._count(mask)
        return found

    def _first_alike(self, value: Value) -> Value:
        """The first value that the same ops made of the same values. Time O(nodes recorded since the last question)."""
        nodes = self.builder.nodes
        alike = self._alike
        while self._compared < len(nodes):
            node = nodes[self._compared]
            self._compared += 1
            operands = tuple(alike.get(v, v) for v in node.inputs)
            if node.op.is_view and node.inputs[0].type == node.outputs[0].type:
                alike[node.outputs[0]] = operands[0]
                continue
            first = self._made.setdefault((node.op, operands), node.outputs)
            if first is not node.outputs:
                alike.update(zip(node.outputs, first, strict=True))
        return alike.get(value, value)

    def _count(self, mask: Value) -> Value:
        if mask.type.device != CPU:
            return self._counted_there(mask)
        with grad_mode(False):
            count = wrap_value(mask).to(int64).sum()
            if self.are_counts_fixed:
                assert count._value is not None
                return self._positions_of(mask, int(self.concretize(count._value).item()))
        return self._defined(Positions, mask, count, max(2, hint_of(mask.type.size) // 2 + 1) + self.shift)

    def _defined(self, kind: Callable[[int], Op], operand: Value, number: Tensor, hint: int) -> Value:
        """The result of an op that defines the next counted size."""
        name = f"u{next(self.numbers)}"
        symbol = size(hint, expressions.symbol(name, 0))
        (found,) = self.apply(kind(symbol), (operand,))
        self.counted[name] = found, number
        return found

    def size_of_number(
        self, number: Value, most: int | None, refusal: str, is_place: bool = False, is_settled: bool = False
    ) -> int:
        """A size that is a number of the step (int64, 0-d); the same for numbers computed alike.

        Args:
            most: what it does not exceed, or None.
            refusal: the message of the error if it is negative.
            is_place: it is a place in a tensor, and the error an IndexError.
            is_settled: it is known that it is at least 0 and at most ``most``, so that one size serves all who ask.
        """
        if self.are_counts_fixed:
            fixed = int(self.concretize(number).item())
            if fixed < 0:
                error = negative_size(refusal, is_place, fixed)
                raise error if is_place else error.with_facts({"size": fixed})
            return fixed
        if number.type.device != CPU:  # sizes are the host's
            with grad_mode(False):
                number = self._value(moved(wrap_value(number), CPU))
        value = self._first_alike(number)
        alike = (value, "settled") if is_settled else (value, structure(most), refusal, is_place)
        found = self._defining.get((value, "settled"), self._defining.get(alike))
        if found is None:
            kind = partial(Extent, most=most, refusal=refusal, is_place=is_place)
            typical_size = TYPICAL_COUNT if most is None else hint_of(most) // 2 + 1
            hint = max(2, typical_size) + self.shift
            if most is not None:  # what numbers of this size choose exists, also in the hints
                hint = min(hint, hint_of(most))
            if is_place and most is not None:
                hint = (hint_of(most) // 2 + self.shift) % (hint_of(most) + 1)  # places exist, also in the hints
            found = self._defining[alike] = self._defined(kind, number, wrap_value(number), hint)
        return found.type.shape[0]

    def _positions_of(self, mask: Value, count: int) -> Value:
        """The positions of a known number of true elements: each is written where the count of those before says."""
        flat = wrap_value(mask).reshape(-1)
        places = where(flat, flat.to(int64).cumsum(0) - 1, flat.shape[0])
        (iota,) = self.apply(Iota((flat.shape[0],), 0, int64, mask.type.device), ())
        spread = wrap_value(iota).new_zeros(flat.shape[0] + 1).scatter(0, places, wrap_value(iota))
        found = spread[:count].clone()._value
        assert found is not None
        return found

    def _counted_there(self, mask: Value) -> Value:
        """The positions of true elements on a device, which packs and counts them: the host is told the number."""
        with grad_mode(False):
            flat = wrap_value(mask).reshape(-1)
            packed, number = self.apply(PackedPositions(), (self._value(flat),))
            count = self.size_of_number(number, mask.type.size, NO_SIZE)
            (found,) = self.apply(Slice((0,), (count,), (1,)), (packed,))
            return self._value(wrap_value(found).clone())

    @staticmethod
    def _value(t: Tensor) -> Value:
        """What a tensor is in this capture."""
        assert t._value is not None
        return t._value

    def concrete_op(self, op: Op) -> Op:
        """An op as it is in this call."""
        if isinstance(op, Counting):
            return op
        if self.counted:
            for name in symbols_of(op) - self.sizes.keys():
                self.sizes[name] = len(self.evaluate(self.counted[name][0]))
        found: Op = concrete(op, self.sizes) if self.sizes else op
        return found
