"""Meshes: the ranks of a job as a grid, with a group along each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.errors import ArgumentError, UsageError
from autojit.distributed.groups import ProcessGroup, default_group, init_process_group, is_initialized, new_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks in a grid.

    Args:
        device_type: ``"cpu"`` or ``"cuda"``; where tensors are is theirs to say.
        mesh: the numbers of ranks, nested lists or a tensor.
        mesh_dim_names: names of the dimensions.

    Raises:
        ValueError: names and dimensions differ in number.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        groups: Sequence[ProcessGroup] | None = None,
    ) -> None:
        if not is_initialized():
            init_process_group()
        self.device_type = device_type
        self._ranks = np.asarray(mesh.tolist() if hasattr(mesh, "tolist") else mesh, np.int64)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if names is not None and len(names) != self._ranks.ndim:
            raise ArgumentError("DeviceMesh: a name per dimension", {"names": names, "dimensions": self._ranks.ndim})
        self.mesh_dim_names = names
        self._groups = self._made() if groups is None else list(groups)

    def _made(self) -> list[Any]:
        """This rank's group along each dimension. All ranks make all groups, in one order."""
        me, found = default_group().rank(), []
        for dim in range(self._ranks.ndim):
            mine = None
            for ranks in np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim]).tolist():
                is_world = len(ranks) == default_group().size() and ranks == sorted(ranks)
                made = default_group() if is_world else new_group(ranks, sort_ranks=False)
                mine = made if me in ranks else mine
            found.append(mine)
        return found

    @property
    def mesh(self) -> Any:
        """The numbers of the ranks, a NumPy array."""
        return self._ranks

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._ranks.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each dimension."""
        return tuple(int(n) for n in self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, or of those along one dimension."""
        return int(self._ranks.size) if mesh_dim is None else self.shape[mesh_dim]

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise UsageError("DeviceMesh: there are several dimensions", {"mesh": self}, "name one")
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise ArgumentError("DeviceMesh: there is no such dimension", {"named": mesh_dim, "mesh": self})
            return (self.mesh_dim_names or ()).index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of the ranks along a dimension, through this rank."""
        found: ProcessGroup = self._groups[self._dim(mesh_dim)]
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """This rank's group along each dimension."""
        return list(self._groups)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along a dimension."""
        return self.get_group(mesh_dim).rank()

    def get_rank(self) -> int:
        """This rank's number in the job."""
        return default_group().rank()

    def get_coordinate(self) -> list[int] | None:
        """This rank's place in the grid; None: it is not in it."""
        found = np.argwhere(self._ranks == self.get_rank())
        return found[0].tolist() if len(found) else None

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh along some dimensions, through this rank."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(name) for name in wanted]
        place = self.get_coordinate() or [0] * self.ndim
        ranks = self._ranks[tuple(slice(None) if d in dims else place[d] for d in range(self.ndim))]
        ranks = np.transpose(ranks, np.argsort(np.argsort(dims)))
        return DeviceMesh(self.device_type, ranks, mesh_dim_names=wanted, groups=[self._groups[d] for d in dims])

    def __repr__(self) -> str:
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}, mesh_dim_names={self.mesh_dim_names})"


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None, **others: Any
) -> DeviceMesh:
    """The ranks of the job as a grid, row by row.

    Raises:
        RuntimeError: the job has another number of ranks.
    """
    if not is_initialized():
        init_process_group()
    size = default_group().size()
    if math.prod(mesh_shape) != size:
        raise UsageError(
            f"Mesh should not be bigger than default world size {size}, but found {math.prod(mesh_shape)} ranks!",
            {"mesh_shape": tuple(mesh_shape)},
        )
    return DeviceMesh(device_type, np.arange(size).reshape(tuple(mesh_shape)), mesh_dim_names=mesh_dim_names)
