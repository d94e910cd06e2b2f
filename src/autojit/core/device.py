"""Devices: where a tensor's storage is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from autojit.core.errors import ArgumentKindError, DeviceError

if TYPE_CHECKING:
    from autojit.core.device_array import Space

_KINDS = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy",
    "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip
"""What torch's devices may be called, which programs compare with; `require_available` says which there are."""
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


class Device:
    """A device kind and an ordinal, written ``cpu`` or ``cuda:0``; ``autojit.device`` is this class.

    Made of text, of text and an ordinal, of an ordinal alone (a CUDA device) or of a device.

    >>> Device("cuda:1").index, Device("cuda", 0) == Device("cuda:0"), Device("cpu:0")
    (1, True, device(type='cpu'))
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __new__(cls, type: str | Device | int, index: int | None = None) -> Device:
        """The device that is meant.

        Raises:
            TypeError: the argument is neither text, a number nor a device.
            RuntimeError: there is no such kind.
        """
        if isinstance(type, Device):
            return type
        kind, index = ("cuda", type) if isinstance(type, int) else _parsed(type, index)
        if kind in _single:
            return _single[kind]
        made = object.__new__(cls)
        object.__setattr__(made, "type", kind)
        object.__setattr__(made, "index", index)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"attribute {name!r} of 'autojit.device' objects is not writable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"attribute {name!r} of 'autojit.device' objects is not writable")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Device) and (self.type, self.index) == (other.type, other.index))

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[object, ...]:
        return Device, (self.type, self.index)

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


def _parsed(spec: object, index: int | None) -> tuple[str, int | None]:
    if not isinstance(spec, str):
        raise ArgumentKindError(f"device(): argument 'type' (position 1) must be str, not {type(spec).__name__}")
    kind, _, ordinal = spec.partition(":")
    if (kind not in _KINDS and kind not in _spaces) or (ordinal and not ordinal.isdigit()):
        raise DeviceError(f"Expected one of {', '.join(_KINDS)} device type at start of device string: {spec}")
    return kind, int(ordinal) if ordinal else index


_single: dict[str, Device] = {}  # kinds of which there is one device, without an ordinal
device = Device
CPU = Device("cpu")
META = Device("meta")
"""Of tensors without elements: `dispatch.meta_device`."""
_single.update(cpu=CPU, meta=META)
DeviceLike = Device | str | int | None
"""What says where a new tensor is."""
_places: list[Device] = [CPU]  # the last one is where tensors are that are made without a device


def default_device() -> Device:
    """Where tensors are that are made without a device."""
    return _places[-1]


def set_default_device(place: Device | None) -> None:
    """Choose it, for what no ``with device(..)`` block says otherwise; None means the CPU."""
    _places[0] = CPU if place is None else place


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
    is_full = place.index is not None or place.type in _single
    return place if is_full else Device(place.type, current_index(place.type))
