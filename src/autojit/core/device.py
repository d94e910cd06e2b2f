"""Devices: where a tensor's storage is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from autojit.core.errors import ArgumentKindError, DeviceError

if TYPE_CHECKING:
    from autojit.core.device_array import Space

_KINDS = ("cpu", "cuda", "meta")
_finders: dict[str, Callable[[], object]] = {}  # of the kinds that are looked for when somebody asks for them


class _Kind(NamedTuple):
    """Devices that exist here besides the CPU: the memory of each, and how many there are, if that is limited."""

    space: Callable[[Device], Space]
    how_many: Callable[[], int] | None


_spaces: dict[str, _Kind] = {}
_made: dict[Device, Space] = {}  # one memory per device, made when it is first used


def look_for(kind: str, finder: Callable[[], object]) -> None:
    """Let devices of a kind be looked for when one is first asked for.

    ``finder`` registers the kind, or raises a `DeviceError` that says what is missing.
    """
    _finders[kind] = finder


def register_device(kind: str, space: Callable[[Device], Space], count: Callable[[], int] | None = None) -> None:
    """Let devices of a kind exist, each with the memory that ``space`` gives; ``count`` tells how many there are."""
    _spaces[kind] = _Kind(space, count)


def forget_device(kind: str) -> None:
    """End the existence of a kind; arrays that are there keep their memory."""
    _spaces.pop(kind, None)
    for place in [place for place in _made if place.type == kind]:
        del _made[place]


def is_cpu_alone() -> bool:
    """Whether no other device than the CPU was asked for and found."""
    return not _spaces


def is_in_use(kind: str) -> bool:
    """Whether the memory of a device of a kind was asked for."""
    return any(place.type == kind for place in _made)


def space_at(place: Device) -> Space:
    """The memory of a device other than the CPU, which must be available."""
    found = _made.get(place)
    if found is None:
        found = _made[place] = _spaces[require_available(place).type].space(place)
    return found


def reaches(place: Device) -> bool:
    """Whether the host's own code reaches the memory of a device that is in use."""
    found = _made.get(place)
    return place == CPU or (found is not None and found.is_of_host)


class _Current(threading.local):
    """Per kind, the ordinal of the device that a thread uses where none is named."""

    def __init__(self) -> None:
        self.indices: dict[str, int] = {}


_current = _Current()


def current_index(kind: str) -> int:
    """Which device of a kind this thread uses where none is named."""
    return _current.indices.get(kind, 0)


def set_current_index(kind: str, index: int) -> int:
    """Use this device of the kind where none is named; the one before."""
    before = current_index(kind)
    _current.indices[kind] = index
    return before


@dataclass(frozen=True, slots=True)
class Device:
    """A device kind and an ordinal, written ``cpu`` or ``cuda:0``."""

    type: str
    index: int | None = None

    def __enter__(self) -> Device:
        """New tensors are on this device, until the block ends, when none is given."""
        _places.append(require_available(self))
        return self

    def __exit__(self, *error: object) -> None:
        _places.pop()

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        if self.index is None:
            return f"device(type='{self.type}')"
        return f"device(type='{self.type}', index={self.index})"


CPU = Device("cpu")
DeviceLike = Device | str | int | None
"""What says where a new tensor is."""
_places: list[Device] = [CPU]  # the last one is where tensors are that are made without a device


def default_device() -> Device:
    """Where tensors are that are made without a device."""
    return _places[-1]


def set_default_device(place: Device | None) -> None:
    """Choose it, for what no ``with device(..)`` block says otherwise; None means the CPU."""
    _places[0] = CPU if place is None else place


def device(spec: str | Device | int, index: int | None = None) -> Device:
    """Parse a device: ``device("cuda:0")``, ``device("cpu")``, ``device("cuda", 0)``.

    >>> device("cuda:1").index
    1
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, int):
        return Device("cuda", spec)
    if not isinstance(spec, str):
        raise ArgumentKindError(f"device(): argument 'type' (position 1) must be str, not {type(spec).__name__}")
    kind, _, ordinal = spec.partition(":")
    if (kind not in _KINDS and kind not in _spaces) or (ordinal and not ordinal.isdigit()):
        raise DeviceError(f"Expected one of {', '.join(_KINDS)} device type at start of device string: {spec}")
    if ordinal:
        index = int(ordinal)
    if kind == "cpu":
        return CPU
    return Device(kind, index)


def require_available(target: Device) -> Device:
    """The device itself when autojit can compute there; RuntimeError naming what is missing otherwise."""
    kind = target.type
    if kind == "cpu":
        return target
    if kind not in _spaces:
        finder = _finders.get(kind)
        if finder is None:
            raise DeviceError(
                f"device '{target}' is not available: autojit computes on CPUs and CUDA devices", fix=_FIX
            )
        try:
            finder()
        except DeviceError as error:
            missing = str(error).partition("\n")[0]
            raise DeviceError(f"device '{target}' is not available: {missing}", fix=_FIX) from None
    how_many = _spaces[kind].how_many
    if how_many is not None and target.index is not None and target.index >= how_many():
        raise DeviceError(
            "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?",
            {"device": target, "devices": how_many()},
            f"use a smaller ordinal: {kind}:0",
        )
    return target


def is_available(kind: str) -> bool:
    """Whether autojit can compute on a device of a kind."""
    try:
        require_available(Device(kind))
    except DeviceError:
        return False
    return True


_FIX = "pass device='cpu'; without a GPU, AUTOJIT_CUDA=emulate in the environment makes an emulated one"


def with_index(place: Device) -> Device:
    """The device with its ordinal: one besides the CPU that is named without it is the thread's current one."""
    return place if place == CPU or place.index is not None else Device(place.type, current_index(place.type))
