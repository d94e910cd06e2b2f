"""Where the tensors of a file go: where they were, unless ``map_location`` says otherwise."""

from __future__ import annotations

from typing import Any

from autojit.core.device import CPU, Device, device
from autojit.core.errors import DeviceError
from autojit.dispatch.on_device import where_to


def place_of(location: str, mapped: Any) -> Device:
    """The device of a storage that was at ``location``: what a dict or a device says, else the one where it was.

    Raises:
        DeviceError: it was on a device that is not there, and nothing says where it is to be now.
    """
    if isinstance(mapped, dict):
        mapped = mapped.get(location, mapped.get(device(location)) if _is_device(location) else None)
    if mapped is not None:
        return where_to(mapped)
    if location == "cpu":
        return CPU
    try:
        return where_to(location)
    except DeviceError as error:
        what = "a CUDA device" if location.startswith("cuda") else location
        raise DeviceError(
            f"load: Attempting to deserialize object on {what} ({location}), which is not available here",
            {"cause": str(error).partition("\n")[0]},
            'map it to the CPU: load(file, map_location="cpu")',
        ) from None


def _is_device(location: str) -> bool:
    return location.partition(":")[0] in ("cpu", "cuda")
