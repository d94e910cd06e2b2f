"""The words that guards compare: where they are, and what they must be."""

from __future__ import annotations

from autojit.runtime.entry_spec import MISSING, CellGuard, Guard, LentGuard, SlotGuard, WordGuard
from autojit.runtime.executable import data_address
from autojit.runtime.object_layout import cell_content_address, slot_offset


def guarded_word(guard: SlotGuard | CellGuard | WordGuard | LentGuard) -> int:
    """Address of the guarded word."""
    if isinstance(guard, SlotGuard | LentGuard):
        return id(guard.owner) + slot_offset(type(guard.owner), guard.slot)
    if isinstance(guard, CellGuard):
        return cell_content_address(guard.cell)
    return data_address(guard.counter)


def expected_word(guard: Guard, expected: object) -> int:
    """What the guarded word must be: a number, or an object's address."""
    if isinstance(guard, WordGuard):
        assert isinstance(expected, int)
        return expected
    return address_of(expected)


def address_of(value: object) -> int:
    """Of an object; 0 for none."""
    return 0 if value is MISSING else id(value)
