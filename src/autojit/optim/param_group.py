"""ParamGroup: hyper-parameters that a compiled step reads as inputs.

In eager mode ``hyper(group, "lr")`` is the plain number. While a step is traced it is a *slot*: a 0-d float64 tensor
that belongs to the group and becomes state of the trace. Writing ``group["lr"] = 0.1`` writes into the slot's memory,
so a scheduler changes the compiled step's behaviour without recompiling it.

What a trace did bake in (branches such as ``weight_decay != 0``, flags, values read by user code) is protected by the
guard epoch: writes that change it bump the epoch, and compiled steps check their guards again. A float that user code
(an optimiser of its own) has read and that changes afterwards becomes an input of the next step as well. Options that
the step itself assigns are its arguments and results.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Container, Iterable, Mapping
from typing import Any

import autojit as aj
from autojit.core.counted_dict import ItemByItem
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch, is_tracing, outside_trace
from autojit.tensor.state import state as now

_LEAST, _MOST = 5e-324, sys.float_info.max
_RANGES = {-1: (-_MOST, -_LEAST), 0: (0.0, 0.0), 1: (_LEAST, _MOST)}  # of finite numbers, by their sign

Slot = tuple[str, int | None]  # name of the hyper-parameter, place in it when it is a tuple (betas)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not _is_of_step(value)


def _is_of_step(value: object) -> bool:
    """Whether it is a number that a captured step computes or takes as an argument."""
    return hasattr(type(value), "as_operand")


def _sign(value: Any) -> tuple[int, bool]:
    """What every step knows of a number: its sign, and whether it is finite."""
    return (value > 0) - (value < 0), math.isfinite(value)


def _is_baked_change(old: object, new: object) -> bool:
    """Whether replacing ``old`` by ``new`` changes more than a slot can show: its type, or its sign."""
    if _is_number(old) and _is_number(new):
        return _sign(old) != _sign(new)
    if isinstance(old, tuple | list) and isinstance(new, tuple | list) and len(old) == len(new):
        return any(_is_baked_change(a, b) for a, b in zip(old, new, strict=True))
    return not _is_equal(old, new)


def _holds_floats(value: object) -> bool:
    return any(map(_holds_floats, value)) if isinstance(value, tuple | list) else type(value) is float


def _is_equal(old: object, new: object) -> bool:
    if old is new:
        return True
    plain = bool | int | float | str | None
    return isinstance(old, plain) and type(old) is type(new) and old == new


class ParamGroup(ItemByItem[str]):
    """A parameter group: a dict as in torch, whose numbers have slots for compiled steps."""

    __slots__ = ("_baked", "_made_in", "_open", "_slots")

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> None:
        super().__init__(values, **more)
        self._slots: dict[Slot, Tensor] = {}
        self._baked: set[str] = set()  # names whose plain value a trace has read
        self._made_in = None if now.trace is None else weakref.ref(now.trace)
        self._open: set[str] = set()  # of these, floats that were others afterwards: traces read their slots

    def slot(self, name: str, place: int | None = None) -> Tensor:
        """The 0-d float64 tensor that follows the number ``name`` (or entry ``place`` of it)."""
        found = self._slots.get((name, place))
        if found is None:
            value = dict.__getitem__(self, name)
            value = value if place is None else value[place]
            with outside_trace():
                found = self._slots[name, place] = aj.tensor(float(value), dtype=aj.float64, device="cpu")
        return found

    def take_over(self, other: ParamGroup) -> None:
        """Stand in the place of another group: what traces have read of that, they read of this."""
        self._baked |= other._baked
        self._open |= other._open

    def plain(self, name: str) -> Any:
        """The value itself, for the optimiser's own branches: only its type and being zero may be relied upon."""
        return dict.__getitem__(self, name)

    def baked_state(
        self, options: Container[str], assigned: Container[tuple[int, Any]] = ()
    ) -> tuple[tuple[str, Any], ...]:
        """Everything a trace may depend on besides the slots: flags, types, whether numbers are zero, values read.

        Of names outside the optimiser's own ``options`` (a scheduler's notes, say) only those a trace has read count.
        ``assigned``: (id, name) of options that are arguments of the step.
        """
        names = [name for name in self if name != "params" and (name in options or name in self._baked)]
        found = [(name, self._baked_part(name, dict.__getitem__(self, name))) for name in names]
        found += [(name, "is not there") for name in sorted(self._baked) if not dict.__contains__(self, name)]
        return tuple([part for part in found if (id(self), part[0]) not in assigned])

    def _baked_part(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._baked_part(name, item) for item in value)
        if isinstance(value, Tensor) or _is_of_step(value):
            return id(value)
        return ("number", *_sign(value)) if _is_number(value) and name not in self._baked else value

    def __contains__(self, name: object) -> bool:
        found = dict.__contains__(self, name)
        if not found and now.trace is not None and isinstance(name, str) and not now.trace.is_assigned(self, name):
            self._baked.add(name)
        return found

    def __getitem__(self, name: str) -> Any:
        value = dict.__getitem__(self, name)
        if name != "params" and now.trace is not None and not now.trace.is_assigned(self, name):
            if name in self._open:
                return self._of_step(name, value)
            self._baked.add(name)
        return value

    def _of_step(self, name: str, value: Any, place: int | None = None) -> Any:
        """The value with numbers of the step for its floats."""
        if isinstance(value, tuple | list):
            return type(value)([self._of_step(name, item, k) for k, item in enumerate(value)])
        if type(value) is not float:
            return value
        number: Any = self.slot(name, place).item()
        sign, is_finite = _sign(value)
        return number.within(*_RANGES[sign]) if is_finite and _is_of_step(number) else number

    def get(self, name: str, default: Any = None) -> Any:
        """The value of ``name``, or ``default``."""
        return self[name] if name in self else default  # noqa: SIM401  # this is get

    def __setitem__(self, name: str, value: Any) -> None:
        if now.trace is not None:
            self._assigned_in_capture(now.trace, name)
            dict.__setitem__(self, name, value)
            return
        if name in self:
            self._note_change(name, dict.__getitem__(self, name), value)
        elif name in self._baked:
            bump_guard_epoch()
        dict.__setitem__(self, name, value)
        for (slot_name, place), slot in self._slots.items():
            if slot_name == name:
                slot._array[...] = value if place is None else value[place]

    def _assigned_in_capture(self, trace: Any, name: str) -> None:
        """Before an option is changed in a capture: the change is put back, and made by every call of the step."""
        if self._made_in is not None and self._made_in() is trace:
            self._drop_slots(name, None)
        elif name == "params" or not trace.assigns(self, name):
            trace.cannot(f"the step changes {name!r} of an optimiser's group, which exists outside it,")
        elif name in self._baked:  # by this capture alone, or else others look at their guards
            self._baked.discard(name)
            bump_guard_epoch()

    def _note_change(self, name: str, old: Any, value: Any) -> None:
        if _is_baked_change(old, value):
            self._drop_slots(name, value)
            bump_guard_epoch()
        elif name in self._baked and not _is_equal(old, value):
            if _holds_floats(value):
                self._baked.discard(name)
                self._open.add(name)
            bump_guard_epoch()

    def _drop_slots(self, name: str, value: Any) -> None:
        """Forget slots that the new value no longer fits (it is not a number, or a tuple of another length)."""
        for slot_name, place in list(self._slots):
            if slot_name != name:
                continue
            fits = _is_number(value) if place is None else (
                isinstance(value, tuple | list) and place < len(value) and _is_number(value[place])
            )  # fmt: skip
            if not fits:
                del self._slots[slot_name, place]

    def __delitem__(self, name: str) -> None:
        if now.trace is not None:
            self._assigned_in_capture(now.trace, name)
            dict.__delitem__(self, name)
            return
        dict.__delitem__(self, name)
        self._drop_slots(name, None)
        bump_guard_epoch()

    def pop(self, name: str, *default: Any) -> Any:
        """Remove and return the value of ``name``."""
        if name not in self and default:
            return default[0]
        found = dict.__getitem__(self, name)
        del self[name]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the newest name and value."""
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove everything."""
        for name in list(self):
            del self[name]

    def copy(self) -> dict[str, Any]:
        """The values as a plain dict."""
        return dict(self)

    def __copy__(self) -> ParamGroup:
        return ParamGroup(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParamGroup, (dict(self),)


def hyper(group: ParamGroup, name: str, place: int | None = None) -> Any:
    """A hyper-parameter for arithmetic: its plain number, or while tracing its slot. Tensors (``lr``) stay tensors."""
    value = group.plain(name)
    value = value if place is None else value[place]
    if not is_tracing():
        return value
    is_assigned = now.trace is not None and now.trace.is_assigned(group, name)
    if _is_of_step(value):
        return value.as_operand().to(aj.float64)
    if not _is_number(value):
        return value
    return aj.tensor(float(value), dtype=aj.float64, device="cpu") if is_assigned else group.slot(name, place)
