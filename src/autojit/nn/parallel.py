"""torch.nn.parallel: modules on several devices or in several processes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.core.lazy_modules import LazyNames
from autojit.core.lazy_modules import provide as _provide
from autojit.nn.data_parallel import DataParallel, data_parallel, gather, scatter

if TYPE_CHECKING:
    from autojit.nn.distributed_data_parallel import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "scatter"]

_HOME = "autojit.nn.distributed_data_parallel"
__getattr__ = LazyNames(__name__, {"DistributedDataParallel": _HOME})
_provide(
    "autojit.nn",
    {
        "parallel.distributed": "distributed_data_parallel",
        "parallel.data_parallel": "data_parallel",
        "parallel.scatter_gather": "data_parallel",
    },
)
