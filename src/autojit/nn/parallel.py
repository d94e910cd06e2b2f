"""torch.nn.parallel: modules on several devices or in several processes at once. There is one of each here."""

from __future__ import annotations

from autojit.core.errors import UsageError
from autojit.nn.data_parallel import DataParallel
from autojit.nn.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over processes: refused, as processes cannot work together yet.

    Programs import the name, and use it where they are started as one of several.

    Raises:
        UsageError: when it is made.
    """

    def __init__(self, module: Module, *args: object, **kwargs: object) -> None:
        super().__init__()
        raise UsageError(
            "DistributedDataParallel: Default process group has not been initialized, please make sure to call "
            "init_process_group.",
            {"module": type(module).__name__},
            "run the program as one process, with the module itself",
        )
