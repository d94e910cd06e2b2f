"""DistributedSampler: each of several processes reads its own share of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from itertools import cycle, islice
from typing import Any

import autojit as aj
from autojit.distributed.groups import get_rank, get_world_size, is_initialized
from autojit.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """The indices of one of ``num_replicas`` equal shares; ``set_epoch`` gives another order.

    Args:
        num_replicas: how many processes there are; by default those of the process group, 1 without one.
        rank: which of them this one is; by default its number in the group, 0 without one.
        shuffle: draw the order, by ``seed`` and epoch, the same in all processes.
        drop_last: leave out indices that do not divide equally, in place of repeating some.

    Raises:
        ValueError: ``rank`` is out of range.

    Example:
        >>> from autojit.utils.data import DistributedSampler
        >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
        [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset: Sized = dataset
        is_alone = not is_initialized()
        self.num_replicas = num_replicas if num_replicas is not None else 1 if is_alone else get_world_size()
        self.rank = rank if rank is not None else 0 if is_alone else get_rank()
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]")
        self.epoch = 0
        self.drop_last = drop_last
        size = len(self.dataset)
        if drop_last and size % self.num_replicas:
            self.num_samples = math.ceil((size - self.num_replicas) / self.num_replicas)
        else:
            self.num_samples = math.ceil(size / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        order = list(range(size))
        if self.shuffle:
            generator = aj.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = aj.randperm(size, generator=generator, device="cpu").tolist()
        whole = order[: self.total_size] if self.drop_last else list(islice(cycle(order), self.total_size))
        return iter(whole[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which pass comes next: each has an order of its own."""
        self.epoch = epoch
