"""Names of torch's divided tensors and wrappers that libraries import and ask for by isinstance: nothing here is one.

Parameters that ranks divide are plain tensors (`nn/tensor_parallel.py`), so what takes DTensors apart is not reached.
"""

from __future__ import annotations

from typing import Any, NoReturn

from autojit.core.absent_class import WithoutInstances
from autojit.core.errors import UnsupportedError
from autojit.core.records import record

__all__ = [
    "CPUOffload",
    "CPUOffloadPolicy",
    "FullyShardedDataParallel",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "Join",
    "JoinHook",
    "Joinable",
    "ModelAverager",
    "Partial",
    "ShardingStrategy",
    "all_to_all_single_autograd",
    "compute_local_shape_and_global_offset",
    "distribute_tensor",
    "transformer_auto_wrap_policy",
    "wait_tensor",
]

_PLAIN = "divided tensors are plain tensors here, one part on each rank"
_INSTEAD = "parallelize_module divides layers; distributed.functional has collectives with derivatives"


@record
class Partial:
    """How a tensor would be divided: every rank has a term of a sum."""

    reduce_op: str = "sum"


@record
class _StridedShard:
    """How a tensor would be divided: each rank has parts along an axis, dealt out in turn."""

    dim: int
    split_factor: int = 1


class HuggingFaceStorageReader(WithoutInstances):
    """Reads files of safetensors in parts."""

    what = "files that ranks read in parts"
    instead = "aj.load, or safetensors"


class HuggingFaceStorageWriter(HuggingFaceStorageReader):
    """Writes files of safetensors in parts."""


class FullyShardedDataParallel(WithoutInstances):
    """torch's first form of sharded modules."""

    what = "wrapped sharded modules"
    instead = "fully_shard(module)"


class ShardingStrategy(FullyShardedDataParallel):
    """What that form keeps in parts."""


class CPUOffload(FullyShardedDataParallel):
    """Where that form keeps parameters."""


class CPUOffloadPolicy(WithoutInstances):
    """Where sharded parameters would be kept."""

    what = "parameters kept on another device than the module's"
    instead = "leave offload_policy out"


class Joinable(WithoutInstances):
    """What ranks with fewer batches than others wait for."""

    what = "loops that ranks leave one by one"
    instead = "give every rank as many batches: DistributedSampler does"


class Join(Joinable):
    """The block around such a loop."""


class JoinHook(Joinable):
    """What a rank does that has left."""


class ModelAverager(WithoutInstances):
    """Averages parameters now and then."""

    what = "averages of parameters behind an optimiser's back"
    instead = "distributed.all_reduce(p) for p in parameters"


def _refused(name: str, why: str, instead: str = _INSTEAD) -> NoReturn:
    raise UnsupportedError(f"{name}: {why}", {}, instead)


def distribute_tensor(*arguments: Any, **options: Any) -> NoReturn:
    """Refused: there are no DTensors here.

    Raises:
        UnsupportedError: always.
    """
    _refused("distribute_tensor", _PLAIN)


def compute_local_shape_and_global_offset(*arguments: Any, **options: Any) -> NoReturn:
    """Refused: there are no DTensors here.

    Raises:
        UnsupportedError: always.
    """
    _refused("compute_local_shape_and_global_offset", _PLAIN)


def all_to_all_single_autograd(*arguments: Any, **options: Any) -> NoReturn:
    """Refused: ``distributed.functional.all_to_all`` has a derivative.

    Raises:
        UnsupportedError: always.
    """
    _refused(
        "all_to_all_single_autograd", "collectives with derivatives have names of their own",
        "distributed.functional.all_to_all",
    )  # fmt: skip


def transformer_auto_wrap_policy(*arguments: Any, **options: Any) -> NoReturn:
    """Refused: `fully_shard` is called on each module that is to be gathered as one.

    Raises:
        UnsupportedError: always.
    """
    _refused("transformer_auto_wrap_policy", "no policy chooses what is sharded", "fully_shard(layer) for each layer")


def wait_tensor(tensor: Any) -> Any:
    """The tensor: what collectives with derivatives return is there."""
    return tensor
