"""Devices: where a tensor's storage lies."""

from __future__ import annotations

from dataclasses import dataclass

from autojit.core.errors import DeviceError

_KINDS = ("cpu", "cuda", "meta")


@dataclass(frozen=True, slots=True)
class Device:
    """A device kind and an ordinal, written ``cpu`` or ``cuda:0``."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        if self.index is None:
            return f"device(type='{self.type}')"
        return f"device(type='{self.type}', index={self.index})"


CPU = Device("cpu")


def device(spec: str | Device | int, index: int | None = None) -> Device:
    """Parse a device: ``device("cuda:0")``, ``device("cpu")``, ``device("cuda", 0)``.

    >>> device("cuda:1").index
    1
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, int):
        return Device("cuda", spec)
    kind, _, ordinal = spec.partition(":")
    if kind not in _KINDS or (ordinal and not ordinal.isdigit()):
        raise DeviceError(f"Expected one of {', '.join(_KINDS)} device type at start of device string: {spec}")
    if ordinal:
        index = int(ordinal)
    if kind == "cpu":
        return CPU
    return Device(kind, index)


def require_available(target: Device) -> Device:
    """The device itself when autojit can compute there; RuntimeError naming what is missing otherwise."""
    if target.type != "cpu":
        raise DeviceError(f"device '{target}' is not available: this build computes on the CPU only; pass device='cpu'")
    return target
