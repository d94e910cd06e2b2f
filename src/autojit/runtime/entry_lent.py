"""The entry point's records of tensors that a step has lent: in which slots they are, and how readers hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device_array import layout_in_memory
from autojit.runtime.entry_records import BEFORE, LentTensor, ReaderWords, Slot
from autojit.runtime.entry_spec import MISSING, Guard, LentGuard, Readers
from autojit.runtime.executable import POINTER_BYTES, data_address
from autojit.runtime.object_layout import attributes_offset, slot_offset

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.int64]


def lent_places(guards: Sequence[Guard]) -> list[int]:
    """Which guards are of tensors that a step has lent."""
    return [index for index, guard in enumerate(guards) if isinstance(guard, LentGuard)]


def lent_table(guards: Iterable[Any], table_address: int, kept: list[Any]) -> Words:
    """Their records, one a row; ``kept`` gets what the records point to."""
    readers: dict[Readers, int] = {}
    rows: list[LentTensor] = []
    for guard in guards:
        if guard.readers not in readers:
            readers[guard.readers] = _reader_words(guard.readers, kept)
        rows.append(
            LentTensor(
                slot=id(guard.owner) + slot_offset(type(guard.owner), guard.slot),
                own=0,
                lent_offset=slot_offset(type(guard.expected), guard.lent_slot),
                before=BEFORE.index(guard.before),
                store=0 if guard.table_index is None else table_address + POINTER_BYTES * guard.table_index,
                data=0,
                readers=readers[guard.readers],
            )
        )
    table = np.array(rows, np.int64).reshape(-1, len(LentTensor.fields))
    for row, guard in zip(table, guards, strict=True):
        describe_own(row, guard, guard.expected)
    return table


def describe_own(row: Words, guard: Any, own: object) -> None:
    """From now on ``own`` is the tensor of the step, whose memory it writes."""
    row[LentTensor.own.place] = id(own)
    if guard.table_index is not None:
        row[LentTensor.data.place] = data_address(layout_in_memory(getattr(own, guard.readers.array_slot)))


def _reader_words(readers: Readers, kept: list[Any]) -> int:
    cls, storage = readers.tensor_type, readers.storage_type
    pairs = [
        Slot(offset=slot_offset(cls, name), expected=0 if value is MISSING else id(value))
        for name, value in readers.slot_equals
    ]
    slots = np.array(pairs, np.int64).reshape(-1, len(Slot.fields))
    words = ReaderWords(
        none=id(None),
        tensor_type=id(cls),
        array_offset=slot_offset(cls, readers.array_slot),
        storage_offset=slot_offset(cls, readers.storage_slot),
        storage_type=id(storage),
        root_offset=slot_offset(storage, readers.root_slot),
        weak_offset=slot_offset(storage, "__weakref__"),
        n_slots=len(pairs),
        slots=data_address(slots),
        attributes_offset=attributes_offset(cls),
    )
    kept += (slots, found := np.array(words, np.int64))
    return data_address(found)
