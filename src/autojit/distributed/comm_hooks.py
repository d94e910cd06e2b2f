"""Communication hooks for `DistributedDataParallel.register_comm_hook`, under torch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.dtypes import DType, bfloat16, float16
from autojit.distributed.buckets import GradBucket
from autojit.distributed.collectives import all_reduce
from autojit.distributed.groups import get_world_size
from autojit.tensor.tensor import Tensor

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook"]


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Tensor:
    """The average, as without a hook."""
    vector = bucket.buffer() / get_world_size(process_group)
    all_reduce(vector, group=process_group)
    return vector


def _compressed(dtype: DType, process_group: Any, bucket: GradBucket) -> Tensor:
    """The average of gradients that are sent in fewer bits."""
    vector = (bucket.buffer() / get_world_size(process_group)).to(dtype)
    all_reduce(vector, group=process_group)
    return vector.to(bucket.buffer().dtype)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Tensor:
    """The average of gradients that are sent as float16."""
    return _compressed(float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Tensor:
    """The average of gradients that are sent as bfloat16."""
    return _compressed(bfloat16, process_group, bucket)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Any]) -> Callable[[Any, GradBucket], Any]:
    """Another hook, on gradients as bfloat16."""

    def wrapped(state: Any, bucket: GradBucket) -> Any:
        dtype = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(bfloat16))
        made = hook(state, bucket)
        made = made.wait() if hasattr(made, "wait") else made
        found: Tensor = made[0] if isinstance(made, list | tuple) else made
        return found.to(dtype)

    return wrapped
