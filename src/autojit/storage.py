"""torch's name for the module of storages: the memory behind tensors."""

from __future__ import annotations

from autojit.core.absent_class import WithoutInstances
from autojit.functions.storages import TypedStorage as TypedStorage
from autojit.functions.storages import UntypedStorage as UntypedStorage


class PyTorchFileReader(WithoutInstances):
    """What torch reads its files by; libraries name it in annotations."""

    what = "readers of torch's files"
    instead = "aj.load(path)"


__all__ = ["PyTorchFileReader", "TypedStorage", "UntypedStorage"]
