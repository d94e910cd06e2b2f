"""Devices: where a tensor's storage is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autojit.core.errors import ArgumentKindError, DeviceError

if TYPE_CHECKING:
    from autojit.core.device_array import Space

_KINDS = ("cpu", "cuda", "meta")
_spaces: dict[str, Callable[[Device], Space]] = {}  # of the kinds that exist here besides the CPU
_made: dict[Device, Space] = {}  # one memory per device, made when it is first used


def register_device(kind: str, space: Callable[[Device], Space]) -> None:
    """Let devices of a kind exist, each with the memory that ``space`` gives."""
    _spaces[kind] = space


def forget_device(kind: str) -> None:
    """End the existence of a kind; arrays that are there keep their memory."""
    _spaces.pop(kind, None)
    for place in [place for place in _made if place.type == kind]:
        del _made[place]


def is_cpu_alone() -> bool:
    """Whether there is no other device than the CPU."""
    return not _spaces


def space_at(place: Device) -> Space:
    """The memory of a device other than the CPU, which must be available."""
    found = _made.get(place)
    if found is None:
        found = _made[place] = _spaces[require_available(place).type](place)
    return found


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
    if target.type != "cpu" and target.type not in _spaces:
        raise DeviceError(f"device '{target}' is not available: this build computes on the CPU only; pass device='cpu'")
    return target


def with_index(place: Device) -> Device:
    """The device with its ordinal: another device than the CPU that is named without one is the first of its kind."""
    return place if place == CPU or place.index is not None else Device(place.type, 0)
