"""The entry point in Python: for interpreters whose objects native code cannot read, and the reference for the other.

Rings are not used: without reference counts nobody can tell whether a tensor is free, so every call makes its outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autojit.core.device_array import DeviceArray, first_address
from autojit.core.locks import without_waiting
from autojit.core.memory_ranges import range_of
from autojit.core.size_expressions import LEAST
from autojit.core.sizes import is_symbolic
from autojit.runtime.entry_spec import (
    MISSING,
    Argument,
    ArrayArgument,
    ArrayCheck,
    Behind,
    CellGuard,
    Constant,
    DictGuard,
    EntrySpec,
    EqualIntArgument,
    FloatArgument,
    Guard,
    IntArgument,
    LentGuard,
    ObjectArgument,
    Refusal,
    SlotGuard,
    Slots,
    TensorArgument,
)
from autojit.runtime.gate import UNLESS_REENTERED


class PythonEntry:
    """Behaves as `entry.NativeEntry`, slower."""

    def __init__(self, spec: EntrySpec) -> None:
        self._spec = spec
        self._expected = [guard.expected for guard in spec.guards]
        self._failure = ("none", 0)
        self._accepted: tuple[int, ...] = ()
        self._counted = counted = [0]
        self.calls = lambda: counted[0]  # see `entry.NativeEntry.calls`
        self._table = (ctypes.c_void_p * _table_entries(spec)).from_address(spec.table_address)
        kind = ctypes.CFUNCTYPE if spec.releases_gil else ctypes.PYFUNCTYPE
        self._step = kind(None, ctypes.c_void_p)(spec.step_address)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step, or refuse."""
        found = self._unless_taken(args, kwargs)
        if type(found) is not Refusal or self._spec.fallback is None:
            return found
        if found is Refusal.BUSY:
            with UNLESS_REENTERED:
                found = self.attempt(*args, **kwargs)
        return self._spec.fallback(*args, **kwargs) if type(found) is Refusal else found

    def attempt(self, *args: Any, **kwargs: Any) -> Any:
        """See `entry.NativeEntry.attempt`."""
        with self._spec.gate.held():
            return self._refusal(args, kwargs) or self._run((*args, *kwargs.values()))

    def _unless_taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with without_waiting(self._spec.gate.lock) as is_free:
            if is_free and not self._spec.gate.is_taken():
                return self.attempt(*args, **kwargs)
        self._failure = ("busy", 0)
        return Refusal.BUSY

    def set_expected(self, guard: int, expected: object) -> None:
        """See `entry.NativeEntry.set_expected`."""
        self._expected[guard] = expected

    def set_written(self, written: Sequence[tuple[int, int]]) -> None:
        """See `entry.NativeEntry.set_written`."""
        self._spec = self._spec._replace(written=tuple(written))

    def replace_guards(self, guards: Mapping[int, SlotGuard]) -> None:
        """See `entry.NativeEntry.replace_guards`."""
        present = list(self._spec.guards)
        for index, guard in guards.items():
            present[index] = guard
            self._expected[index] = guard.expected
        self._spec = self._spec._replace(guards=tuple(present))

    def set_others(self, entries: Sequence[PythonEntry]) -> None:
        """See `entry.NativeEntry.set_others`; the fallback asks them."""

    def refill(self, ring: int) -> None:
        """See `entry.NativeEntry.refill`; nothing to do here."""

    def last_failure(self) -> tuple[str, int]:
        """See `entry.NativeEntry.last_failure`."""
        return self._failure

    def _refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Refusal | None:
        failure = self._broken_arity(args, kwargs) or self._broken_argument((*args, *kwargs.values()))
        failure = failure or self._broken_identity((*args, *kwargs.values()))
        failure = failure or self._broken_size((*args, *kwargs.values()))
        failure = failure or self._broken_guard()
        if failure is None:
            return None
        self._failure = failure
        return Refusal.SLOW

    def _broken_arity(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int] | None:
        if len(args) != len(self._spec.arguments) - len(self._spec.keyword_names):
            return "arity", 0
        if len(kwargs) != len(self._spec.keyword_names):
            return "keyword", 0
        pairs = enumerate(zip(kwargs, self._spec.keyword_names, strict=True))
        return next((("keyword", index) for index, (given, wanted) in pairs if given != wanted), None)

    def _broken_argument(self, values: Sequence[Any]) -> tuple[str, int] | None:
        pairs = enumerate(zip(values, self._spec.arguments, strict=True))
        return next((("argument", index) for index, (value, spec) in pairs if not self._holds(value, spec)), None)

    def _holds(self, value: Any, argument: Argument) -> bool:
        if not _argument_holds(value, argument):
            return False
        if not self._spec.written or not isinstance(argument, TensorArgument | ArrayArgument):
            return True
        array = value if isinstance(argument, ArrayArgument) else _slot(value, argument.array_slot)
        low, high = range_of(array)
        return all(high <= begin or end <= low for begin, end in self._spec.written)

    def _broken_identity(self, values: Sequence[Any]) -> tuple[str, int] | None:
        triples = self._spec.identities
        return next((("argument", j) for i, j, is_one in triples if (values[i] is values[j]) != is_one), None)

    def _broken_size(self, values: Sequence[Any]) -> tuple[str, int] | None:
        """Take the open sizes' values from the arguments; those that are new have to be accepted."""
        sizes = self._spec.sizes
        if sizes is None:
            return None
        found: dict[str, int] = {}
        for value, argument in zip(values, self._spec.arguments, strict=True):
            if isinstance(argument, TensorArgument | ArrayArgument):
                shape = (getattr(value, argument.array_slot) if isinstance(argument, TensorArgument) else value).shape
                for wanted, extent in zip(argument.check.shape, shape, strict=True):
                    if is_symbolic(wanted) and found.setdefault(str(wanted), extent) != extent:
                        return "sizes", 0
        taken = tuple(found[name] for name in sizes.symbols)
        if sizes.accepts is not None and taken != self._accepted:
            if not sizes.accepts(taken):
                return "sizes", 0
            self._accepted = taken
        sizes.table[: len(taken)] = taken
        return None

    def _broken_guard(self) -> tuple[str, int] | None:
        """Word guards first, then dictionaries, then lent tensors: the order of the native code."""
        kinds = [
            (DictGuard, LentGuard).index(type(g)) if isinstance(g, DictGuard | LentGuard) else -1
            for g in self._spec.guards
        ]
        order = sorted(range(len(self._expected)), key=kinds.__getitem__)
        for index in order:
            if not _guard_holds(self._spec.guards[index], self._expected[index]):
                return "guard", index
        return None

    def _run(self, values: Sequence[Any]) -> Any:
        for value, argument in zip(values, self._spec.arguments, strict=True):
            self._store(value, argument)
        outputs = [ring.make() for ring in self._spec.rings]
        for tensor, ring in zip(outputs, self._spec.rings, strict=True):
            self._table[ring.table_index] = first_address(getattr(tensor, ring.array_slot))
        self._step(self._spec.table_address)
        if (refused := self._raise_errors()) is not None:
            return refused
        self._counted[0] += 1
        for guard, expected in zip(self._spec.guards, self._expected, strict=True):
            if isinstance(guard, LentGuard):
                setattr(guard.owner, guard.slot, expected)
        items = [item.value if isinstance(item, Constant) else outputs[item.ring] for item in self._spec.results]
        return tuple(items) if self._spec.returns_tuple else items[0]

    def _raise_errors(self) -> Any:
        address, on_error = self._spec.error_address, self._spec.on_error
        is_failed = address and on_error is not None and ctypes.c_int64.from_address(address).value
        return on_error() if is_failed and on_error is not None else None

    def _store(self, value: Any, argument: Argument) -> None:
        if isinstance(argument, FloatArgument | IntArgument):
            argument.cell[...] = value
        if isinstance(argument, TensorArgument) and argument.table_index is not None:
            self._table[argument.table_index] = first_address(getattr(value, argument.array_slot))
        if isinstance(argument, ArrayArgument) and argument.table_index is not None:
            self._table[argument.table_index] = first_address(value)


def _table_entries(spec: EntrySpec) -> int:
    indices = [ring.table_index for ring in spec.rings]
    for argument in spec.arguments:
        if isinstance(argument, TensorArgument | ArrayArgument) and argument.table_index is not None:
            indices.append(argument.table_index)
    return max(indices, default=-1) + 1


def _argument_holds(value: Any, argument: Argument) -> bool:
    kind: type = type(value)
    match argument:
        case TensorArgument():
            return (
                type(value) is argument.tensor_type
                and _slots_hold(value, argument.slot_equals)
                and (argument.behind is None or _holds_behind(value, argument.behind))
                and _array_holds(_slot(value, argument.array_slot), argument.check)
            )
        case ArrayArgument():
            return _array_holds(value, argument.check)
        case ObjectArgument():
            return value is argument.expected
        case EqualIntArgument():
            return type(value) is int and value == argument.value
        case FloatArgument():
            bits = int(np.float64(value).view(np.int64)) if kind is argument.of_type else None
            return bits is not None and argument.least <= bits <= argument.most
        case IntArgument():
            return kind is argument.of_type and argument.least <= value <= argument.most


def _array_holds(value: Any, check: ArrayCheck) -> bool:
    if check.space is not None:
        if type(value) is not DeviceArray or value.space is not check.space:
            return False
        value = value.layout
    return (
        type(value) is np.ndarray
        and value.dtype is check.dtype
        and len(value.shape) == len(check.shape)
        and all(n >= LEAST if is_symbolic(w) else n == w for n, w in zip(value.shape, check.shape, strict=True))
        and value.flags.c_contiguous
        and value.flags.aligned
        and (value.flags.writeable or not check.writeable)
    )


def _guard_holds(guard: Guard, expected: object) -> bool:
    match guard:
        case SlotGuard():
            return _slot(guard.owner, guard.slot) is expected
        case CellGuard():
            return _cell_content(guard.cell) is expected
        case LentGuard():
            return _is_not_lent(guard, expected)
        case DictGuard():
            return guard.mapping.get(guard.key, MISSING) is expected
        case _:
            return int(guard.counter.flat[0]) == expected


def _is_not_lent(guard: LentGuard, own: object) -> bool:
    """Without reference counts: nobody has ever read the tensor."""
    held = _slot(guard.owner, guard.slot)
    fits = {"own": held is own, "none": held is None, "any": True}[guard.before]
    return fits and getattr(own, guard.lent_slot) is None


def _slots_hold(value: Any, slots: Slots) -> bool:
    return all(_slot(value, name) is expected for name, expected in slots)


def _holds_behind(value: Any, behind: Behind) -> bool:
    part = _slot(value, behind.part)
    owner = None if part is None else _slot(part, behind.owner)
    return owner is None or _slot(owner, behind.slot) is behind.expected


def _slot(value: Any, name: str) -> Any:
    if name == "__weakref__" and value.__weakref__ is None:
        return MISSING
    return getattr(value, name, MISSING)


def _cell_content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING
