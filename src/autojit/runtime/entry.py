"""A compiled step's entry point as a CPython builtin: arguments and guards are checked natively.

How to read this file: `make_entry` chooses between `NativeEntry` below and the Python one; `NativeEntry` lays the spec
out as the tables `entry_ir` interprets. The tables stay writable, so a guard that Python has verified by hand gets its
new expected value (`set_expected`) and a ring its new tensors (`refill`) without compiling anything.

Everything whose address is in a table is held by the entry, and the entry by its builtin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.codegen.records import Field, Record
from autojit.core.device_array import DeviceArray
from autojit.core.errors import ArgumentError
from autojit.core.late_interrupts import late_interrupts
from autojit.core.own_references import OwnList, let_go
from autojit.core.sizes import is_symbolic
from autojit.runtime.entry_fallback import PythonEntry
from autojit.runtime.entry_lent import describe_own, lent_places, lent_table
from autojit.runtime.entry_method import new_builtin
from autojit.runtime.entry_records import (
    KINDS,
    REASONS,
    ArgumentWords,
    BehindWords,
    GuardedItem,
    GuardedWord,
    Head,
    Identity,
    ResultItem,
    Slot,
    WrittenRange,
)
from autojit.runtime.entry_rings import EntryRings
from autojit.runtime.entry_spec import (
    INT64_LEAST,
    INT64_MOST,
    Argument,
    ArrayArgument,
    ArrayCheck,
    Behind,
    Constant,
    DictGuard,
    EntrySpec,
    EqualIntArgument,
    FloatArgument,
    Guard,
    LentGuard,
    ObjectArgument,
    Refusal,
    SlotGuard,
    Slots,
    TensorArgument,
)
from autojit.runtime.entry_words import address_of, expected_word, guarded_word
from autojit.runtime.executable import POINTER_BYTES, data_address
from autojit.runtime.gate import GATE_WORDS, UNLESS_REENTERED
from autojit.runtime.object_layout import (
    TYPE_OFFSET,
    layout_is_known,
    new_capsule,
    slot_offset,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.int64]


MOST_OTHERS = 4
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


def make_entry(spec: EntrySpec) -> Entry:
    """The fastest entry point this interpreter allows."""
    return NativeEntry(spec) if layout_is_known() else PythonEntry(spec)


NOWHERE = -1  # the address of no object


class NativeEntry:
    """The builtin and its tables. A call that finds the gate taken waits, if there is a fallback or in `attempt`.

    ``call`` is the step as a callable: it gives its result or a `Refusal`. ``calls()`` tells how many calls ran the
    step; it can be asked when the entry is gone, and does not keep it.

    Three builtins share the tables: ``call``; ``_quiet``, which has no fallback; and ``_retry``, which whoever has the
    gate calls, so that what it refuses can be mended (rings refilled, sizes accepted) before anybody else looks.

    Raises:
        ArgumentError: the spec names a slot its class does not have, or an int that does not fit 64 bits.
    """

    def __init__(self, spec: EntrySpec) -> None:
        self._spec = spec
        self._kept: list[Any] = [spec]
        self._expected = OwnList(guard.expected for guard in spec.guards)
        self._write_guards(spec.guards)
        self._taken: set[int] = set()  # open sizes that an argument before says
        self._arguments = _table(ArgumentWords, map(self._argument_words, spec.arguments))
        n_sizes = len(spec.sizes.symbols) if spec.sizes is not None and spec.sizes.accepts is not None else 0
        self._rings = EntryRings(spec.rings, n_sizes)
        self._others = np.zeros(MOST_OTHERS, np.int64)
        self._asked: tuple[Any, ...] = ()  # keeps them
        self._results = self._result_pairs()
        self._written = _written_table(spec.written)
        self._head = self._head_words()
        self._rings.fill()
        self._head[Head.others.place] = data_address(self._others)
        self._quiet_head = self._head.copy()
        self._quiet_head[Head.fallback.place] = 0
        self._retry_head = self._quiet_head.copy()
        self._retry_head[Head.busy.place] = self._keep_table(np.zeros(GATE_WORDS, np.int64))
        first, second, third = [
            head[Head.calls.place : Head.calls.place + 1].item
            for head in (self._head, self._quiet_head, self._retry_head)
        ]
        self.calls: Callable[[], int] = lambda: first() + second() + third()
        self._quiet = new_builtin((new_capsule(data_address(self._quiet_head)), self))
        self._retry = new_builtin((new_capsule(data_address(self._retry_head)), self))
        self.call = new_builtin((new_capsule(data_address(self._head)), self))

    def __del__(self) -> None:
        let_go()

    def set_expected(self, guard: int, expected: object) -> None:
        """From now on guard `guard` of the spec demands `expected`. At any time: calls see the old one or the new."""
        row = self._word_rows.get(guard)
        if row is not None:
            word = expected_word(self._spec.guards[guard], expected)
            self._words[row, GuardedWord.expected.place] = word
        elif guard in self._lent_rows:
            describe_own(self._lent[self._lent_rows[guard]], self._spec.guards[guard], expected)
        else:
            self._dicts[self._dict_rows[guard], GuardedItem.expected.place] = address_of(expected)
        self._expected[guard] = expected

    def replace_guards(self, guards: Mapping[int, SlotGuard]) -> None:
        """From now on these guards of the spec look at slots of other objects. Only with the gate."""
        rows = [self._word_rows[index] for index in guards]
        self._words[rows, GuardedWord.expected.place] = NOWHERE  # a call on another thread waits, whatever it has read
        self._words[rows, GuardedWord.address.place] = [guarded_word(guard) for guard in guards.values()]
        self._words[rows, GuardedWord.expected.place] = [id(guard.expected) for guard in guards.values()]
        present = list(self._spec.guards)
        for index, guard in guards.items():
            self._expected[index] = guard.expected
            present[index] = guard
        self._kept[0] = self._spec = self._spec._replace(guards=tuple(present))

    def set_written(self, written: Sequence[tuple[int, int]]) -> None:
        """From now on the step writes here. With the gate, while a guard refuses every call, as it does not know yet
        what the step writes instead.
        """
        before = self._written
        if len(written) == len(before):
            before[:] = _written_table(written)
            return
        self._written = _written_table(written)
        for head in (self._head, self._quiet_head, self._retry_head):
            head[Head.n_ranges.place] = 0
            head[Head.ranges.place] = data_address(self._written)
            head[Head.n_ranges.place] = len(written)
        self._kept.append(before)  # a call on another thread may be reading it

    def refill(self, ring: int) -> None:
        """Replace the tensors of ring `ring` that are in use by fresh ones. Waits for a call that runs."""
        with self._spec.gate.held():
            self._rings.refill(ring, self.calls())

    def set_others(self, entries: Sequence[NativeEntry]) -> None:
        """Entries that are asked, the first one first, when this one cannot run a call; what they refuse goes on."""
        asked = tuple([entry._quiet for entry in entries[:MOST_OTHERS]])
        self._head[Head.n_others.place] = 0
        self._others[: len(asked)] = [id(other) for other in asked]
        before, self._asked = self._asked, asked
        self._head[Head.n_others.place] = len(asked)
        del before  # not before the table names others

    def last_failure(self) -> tuple[str, int]:
        """Of some last refused call: a word of `entry_records.REASONS` and the index of argument, guard or ring."""
        return self._failure_of(self._head)

    def _failure_of(self, head: Words) -> tuple[str, int]:
        failure = int(head[Head.failure.place])
        reason, index = REASONS[failure & 255], failure >> 8
        rows = {"word": self._word_rows, "dict": self._dict_rows, "lent": self._lent_rows}.get(reason)
        if rows is None:
            return reason, index
        return "guard", next(guard for guard, row in rows.items() if row == index)

    def attempt(self, *args: Any, **kwargs: Any) -> Any:
        """The step without its fallback: its result or a `Refusal`, after waiting if it is busy.

        Raises:
            Reentered: the calling thread is in a call of this step.
        """
        found = self._quiet(*args, **kwargs)
        if type(found) is not Refusal:
            return found
        if found is Refusal.SLOW and not self._rings.accepted.size:
            reason, index = self._failure_of(self._quiet_head)
            if reason != "guard" or not (index in self._lent_rows or index in self._spec.followed):
                return found
        return self._with_gate(args, kwargs)

    def _recover(self, *args: Any, **kwargs: Any) -> Any:
        """What the native code calls when it cannot run the step: make it able to and try again, else the fallback.

        A program that keeps its results (a list of losses) comes here once for every `capacity` calls.
        """
        with UNLESS_REENTERED:
            found = self._with_gate(args, kwargs)
            if type(found) is not Refusal:
                return found
        assert self._spec.fallback is not None
        return self._spec.fallback(*args, **kwargs)

    def _with_gate(self, args: Any, kwargs: Any) -> Any:
        """A call by the one thread that has the gate: fills up rings and has new sizes accepted."""
        gate = self._spec.gate
        with late_interrupts, gate.lock:
            gate.check()
            try:
                gate.close()
                for _ in range(len(self._spec.rings) + len(self._lent_rows) + 3):
                    found = self._retry(*args, **kwargs)
                    if type(found) is not Refusal:
                        return found
                    reason, ring = self._failure_of(self._retry_head)
                    if reason == "ring":
                        self._rings.refill(ring, self.calls())
                    elif reason == "guard" and (ring in self._lent_rows or ring in self._spec.followed):
                        if self._spec.mend is None or not self._spec.mend(ring):
                            break
                    elif reason != "sizes" or not self._accept():
                        break
                self._head[Head.failure.place] = self._retry_head[Head.failure.place]
                return found
            finally:
                gate.words[1] = 0

    def _accept(self) -> bool:
        """Whether new values of the open sizes are welcome; open rings then hold tensors for them."""
        self._spec.gate.expect_mine()
        sizes = self._spec.sizes
        assert sizes is not None and sizes.accepts is not None
        values = tuple(int(n) for n in sizes.table[: len(sizes.symbols)])
        if not sizes.accepts(values):
            return False
        self._rings.accept(values)
        return True

    def _head_words(self) -> Words:
        spec = self._spec
        identities = (Identity(one=one, other=other, is_one=is_one) for one, other, is_one in spec.identities)
        head = Head(
            busy=spec.gate.address,
            n_positional=len(spec.arguments) - len(spec.keyword_names),
            arguments=self._keep_table(self._arguments),
            n_keywords=len(spec.keyword_names),
            keywords=self._keep_table(np.array([self._keep_name(n) for n in spec.keyword_names], np.int64)),
            n_words=len(self._word_rows),
            words=data_address(self._words),
            n_dicts=len(self._dict_rows),
            dicts=data_address(self._dicts),
            n_rings=len(spec.rings),
            rings=data_address(self._rings.records),
            step=spec.step_address,
            table=spec.table_address,
            releases_gil=int(spec.releases_gil),
            n_results=len(spec.results),
            results=data_address(self._results),
            makes_tuple=int(spec.returns_tuple),
            fallback=0 if spec.fallback is None else self._keep_object(self._recover),
            slow=id(Refusal.SLOW),
            need_output=id(Refusal.NEED_OUTPUT),
            is_busy=id(Refusal.BUSY),
            array_type=id(np.ndarray),
            int_type=id(int),
            error=spec.error_address or self._keep_table(np.zeros(1, np.int64)),
            raiser=self._keep_object(spec.on_error),
            n_sizes=self._rings.accepted.shape[1],
            sizes=0 if spec.sizes is None else data_address(spec.sizes.table),
            accepted=data_address(self._rings.accepted),
            sets=data_address(self._rings.sets),
            n_identities=len(spec.identities),
            identities=self._keep_table(_table(Identity, identities)),
            n_ranges=len(spec.written),
            ranges=data_address(self._written),
            n_lent=len(self._lent_rows),
            lent=data_address(self._lent),
        )
        return np.array(head, np.int64)

    def _argument_words(self, argument: Argument) -> ArgumentWords:
        if isinstance(argument, TensorArgument):
            cls = argument.tensor_type
            return ArgumentWords(
                kind=KINDS.index("tensor"),
                expected=id(cls),
                offset=slot_offset(cls, argument.array_slot),
                n_slots=len(argument.slot_equals),
                slots=self._slot_pairs(cls, argument.slot_equals),
                **self._words_behind(cls, argument.behind),
                **self._array_words(argument.check, argument.table_index),
            )
        if isinstance(argument, ArrayArgument):
            return ArgumentWords(kind=KINDS.index("array"), **self._array_words(argument.check, argument.table_index))
        if isinstance(argument, ObjectArgument):
            return ArgumentWords(kind=KINDS.index("object"), expected=id(argument.expected))
        if isinstance(argument, EqualIntArgument):
            if not INT64_LEAST <= argument.value <= INT64_MOST:
                raise ArgumentError("entry: an int does not fit 64 bits", facts={"value": argument.value})
            return ArgumentWords(kind=KINDS.index("equal_int"), offset=argument.value)
        return ArgumentWords(
            kind=KINDS.index("float" if isinstance(argument, FloatArgument) else "int"),
            expected=id(argument.of_type),
            store=data_address(argument.cell),
            least=argument.least,
            most=argument.most,
        )

    def _words_behind(self, cls: type, behind: Behind | None) -> dict[str, int]:
        if behind is None:
            return {"part": TYPE_OFFSET, "no_part": id(cls)}
        words = BehindWords(
            owner_offset=slot_offset(behind.part_type, behind.owner),
            no_owner=id(None),
            slot_offset=slot_offset(behind.owner_type, behind.slot),
            expected=address_of(behind.expected),
        )
        address = self._keep_table(np.array(words, np.int64))
        return {"part": slot_offset(cls, behind.part), "no_part": id(None), "behind": address}

    def _array_words(self, check: ArrayCheck, table_index: int | None) -> dict[str, int]:
        found = {
            "dtype": id(check.dtype),
            "itemsize": check.dtype.itemsize,
            "ndim": len(check.shape),
            "shape": self._keep_table(np.array([self._extent(n) for n in check.shape], np.int64)),
            "store": 0 if table_index is None else self._table_entry(table_index),
            "flags": _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if check.writeable else 0),
        }
        if check.space is not None:
            layout, place = slot_offset(DeviceArray, "layout"), slot_offset(DeviceArray, "space")
            space = self._keep_object(check.space)
            found |= {"wrapper": id(DeviceArray), "layout": layout, "place": place, "space": space}
        return found

    def _extent(self, extent: int) -> int:
        """An extent as a record has it: open sizes as what to do with them."""
        if not is_symbolic(extent):
            return extent
        assert self._spec.sizes is not None
        symbol = self._spec.sizes.symbols.index(str(extent))
        if symbol in self._taken:
            return ~(2 * symbol + 1)
        self._taken.add(symbol)
        return ~(2 * symbol)

    def _slot_pairs(self, cls: type, slots: Slots) -> int:
        pairs = (Slot(offset=slot_offset(cls, name), expected=address_of(value)) for name, value in slots)
        return self._keep_table(_table(Slot, pairs))

    def _write_guards(self, guards: Sequence[Guard]) -> None:
        """The guards' tables, and in which of their rows each guard is."""
        words: list[tuple[int, int]] = []
        items: list[tuple[int, int, int]] = []
        self._word_rows: dict[int, int] = {}
        self._dict_rows: dict[int, int] = {}
        self._lent_rows = {index: k for k, index in enumerate(lent_places(guards))}
        for index, guard in enumerate(guards):
            if isinstance(guard, LentGuard):
                continue
            if isinstance(guard, DictGuard):
                self._dict_rows[index] = len(items)
                key = self._keep_name(guard.key)
                items.append((id(guard.mapping), key, address_of(guard.expected)))
            else:
                self._word_rows[index] = len(words)
                words.append((guarded_word(guard), expected_word(guard, guard.expected)))
        self._words = _columns(GuardedWord, words, GuardedWord.address, GuardedWord.expected)
        self._dicts = _columns(GuardedItem, items, GuardedItem.mapping, GuardedItem.key, GuardedItem.expected)
        self._lent = lent_table([guards[k] for k in self._lent_rows], self._spec.table_address, self._kept)

    def _result_pairs(self) -> Words:
        for ring, one in enumerate(self._spec.rings):
            self._rings.describe(ring, self._table_entry(one.table_index), self._slot_pairs)
        return _table(
            ResultItem,
            (
                ResultItem(ring=0, constant=id(result.value))
                if isinstance(result, Constant)
                else ResultItem(ring=result.ring + 1, constant=0)
                for result in self._spec.results
            ),
        )

    def _table_entry(self, index: int) -> int:
        return self._spec.table_address + POINTER_BYTES * index

    def _keep_table(self, table: Words) -> int:
        self._kept.append(table)
        return data_address(table)

    def _keep_object(self, value: object) -> int:
        self._kept.append(value)
        return id(value)

    def _keep_name(self, name: str) -> int:
        return self._keep_object(sys.intern(name))


Entry = NativeEntry | PythonEntry
"""What the front end has of a step's entry point; both behave as the first describes."""


def _written_table(written: Sequence[tuple[int, int]]) -> Words:
    return _table(WrittenRange, (WrittenRange(begin=begin, end=end) for begin, end in written))


def _table(record: type[Record[int]], rows: Iterable[Record[int]]) -> Words:
    """Records in a row, as memory has them."""
    return np.array(list(rows), np.int64).reshape(-1, len(record.fields))


def _columns(record: type[Record[int]], rows: Sequence[tuple[int, ...]], *fields: Field[int]) -> Words:
    """Records in a row, of which these fields are given: no object is made for each of the many guards of a step."""
    table = np.zeros((len(rows), len(record.fields)), np.int64)
    if rows:
        table[:, [field.place for field in fields]] = rows
    return table
