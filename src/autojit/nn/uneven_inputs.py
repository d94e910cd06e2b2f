"""`DistributedDataParallel.join`: ranks with different numbers of batches.

Every averaged forward pass begins by saying that this rank has a batch. A rank that has none any more says so instead,
and makes the calls of the others' step with zeros, until nobody has one. Both sides are made of the same functions, so
they make the same calls in the same order; in a compiled step those of the active side are ops of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import autojit as aj
from autojit.autograd.grad_mode import no_grad
from autojit.core.communicator import uneven
from autojit.core.errors import UnsupportedError
from autojit.distributed.collectives import all_reduce, broadcast
from autojit.distributed.groups import ProcessGroup
from autojit.tensor import Tensor
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.nn.distributed_data_parallel import DistributedDataParallel


def announced(group: ProcessGroup, has_batch: bool) -> Tensor:
    """Which ranks have a batch, as ones and zeros."""
    with no_grad(), group.for_purpose("ranks that have a batch in DistributedDataParallel.join"):
        active = (aj.arange(group.size()) == group.rank()).to(aj.int32) * int(has_batch)
        all_reduce(active, group=group)
    return active


def check_all_active(active: Tensor, throws: bool) -> None:
    """Raise where a rank has no batch, if that is asked for.

    Raises:
        RuntimeError: a rank has none.
        UnsupportedError: a step is being captured, which cannot raise what depends on the others.
    """
    if not throws:
        return
    if state.trace is not None:
        raise UnsupportedError(
            "DistributedDataParallel.join: throw_on_early_termination is no part of a compiled step",
            fix="leave it out, or let the step run without @aj.jit",
        )
    if int(active.sum()) < active.numel():
        raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")


def sync_from_active(tensors: Sequence[Tensor], active: Tensor, group: ProcessGroup) -> None:
    """Let all ranks have the tensors of the first one that has a batch."""
    with no_grad(), group.for_purpose("buffers of DistributedDataParallel"):
        is_first = active.argmax() == group.rank()
        for t in tensors:
            given = t.where(is_first, aj.zeros_like(t))
            all_reduce(given, group=group)
            t.copy_(given)


@contextmanager
def joined(model: DistributedDataParallel, divides_by_all: bool, throws: bool) -> Iterator[DistributedDataParallel]:
    """While inside, ranks may leave the block after different numbers of steps; all leave it together."""
    group = model.process_group
    model.is_uneven, model.divides_by_all, model.throws_early = True, divides_by_all, throws
    try:
        with uneven(group.group_name):
            yield model
            _follow(model)
    finally:
        model.is_uneven = False


def _follow(model: DistributedDataParallel) -> None:
    """Make the calls of those that have batches; in the end all have what the last of them has."""
    group = model.process_group
    is_last = True
    while True:
        active = announced(group, False)
        if not int(active.sum()):
            break
        check_all_active(active, model.throws_early)
        is_last = False
        sync_from_active(model.buffers_to_sync(), active, group)
        model.reducer.follow()
    with no_grad(), group.for_purpose("parameters and buffers after DistributedDataParallel.join"):
        root = aj.tensor(group.rank() if is_last else -1)
        all_reduce(root, "max", group)
        for t in (*model.module.parameters(), *model.module.buffers()):
            broadcast(t, group=group, group_src=int(root))
