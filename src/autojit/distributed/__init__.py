"""Training in several processes, under torch's names: ranks of an MPI job that call each other's collectives.

``python -m autojit.launch -n 2 train.py`` starts the ranks; alone, a program is a group of one.

Example:
    >>> import autojit as aj
    >>> aj.distributed.init_process_group()
    >>> aj.distributed.get_rank(), aj.distributed.get_world_size()
    (0, 1)
    >>> aj.distributed.destroy_process_group()
"""

from __future__ import annotations

from autojit.core.lazy_modules import provide as _provide
from autojit.distributed.availability import *
from autojit.distributed.buckets import GradBucket as GradBucket
from autojit.distributed.collectives import *
from autojit.distributed.failures import *
from autojit.distributed.groups import *
from autojit.distributed.mesh import *
from autojit.distributed.objects import *
from autojit.distributed.point_to_point import *

from autojit.distributed import rpc as rpc  # isort: skip
from autojit.distributed.reductions import *
from autojit.distributed.simulated import simulated as simulated
from autojit.distributed.threads import run_ranks as run_ranks
from autojit.distributed.varying import per_rank as per_rank
from autojit.distributed.work import *

_provide(
    "autojit.distributed",
    {
        "algorithms": "",
        "algorithms.ddp_comm_hooks": "comm_hooks",
        "algorithms.join": "divided_names",
        "algorithms.model_averaging": "",
        "algorithms.model_averaging.averagers": "divided_names",
        "algorithms.ddp_comm_hooks.default_hooks": "comm_hooks",
        "constants": "groups",
        "checkpoint": "autojit.io.checkpoint",
        "checkpoint.hf_storage": "divided_names",
        "device_mesh": "mesh",
        "nn": "differentiable",
        "nn.functional": "differentiable",
        "fsdp": "autojit.nn.fully_sharded divided_names",
        "fsdp.fully_sharded_data_parallel": "divided_names",
        "fsdp.wrap": "divided_names",
        "optim": "autojit.optim.zero_redundancy",
        "_composable": "",
        "_composable.fsdp": "autojit.nn.fully_sharded",
        "_tensor": "autojit.nn.tensor_parallel",
        "_tensor.experimental": "autojit.nn.tensor_parallel",
        "_functional_collectives": "divided_names",
        "tensor": "autojit.nn.tensor_parallel divided_names",
        "tensor._utils": "divided_names",
        "tensor.placement_types": "autojit.nn.tensor_parallel divided_names",
        "tensor.experimental": "autojit.nn.tensor_parallel",
        "tensor.parallel": "autojit.nn.tensor_parallel",
        "distributed_c10d": "availability collectives groups objects point_to_point reductions work failures",
    },
)
