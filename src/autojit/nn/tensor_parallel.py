"""Tensor parallel linear layers: each rank has some columns or rows of the matrix, and computes with these.

A column-parallel layer takes whole inputs and gives each rank its part of the outputs; a row-parallel layer takes the
parts and gives whole outputs, by one all-reduce. One after the other they need no other communication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

from autojit.autograd.grad_mode import no_grad
from autojit.core.errors import ArgumentError, ShapeError, UnsupportedError
from autojit.core.records import record
from autojit.distributed import functional
from autojit.distributed.collectives import broadcast
from autojit.distributed.groups import ProcessGroup, member_of
from autojit.nn import functional as F
from autojit.nn.linear import Linear
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor

__all__ = ["ColwiseParallel", "DTensor", "ParallelStyle", "Replicate", "RowwiseParallel", "Shard", "parallelize_module"]


class DTensor(Tensor):
    """What torch makes of divided parameters. Here these are plain tensors, each rank's its part: none is a DTensor.

    Raises:
        RuntimeError: one is made.

    Example:
        >>> import autojit as aj
        >>> isinstance(aj.ones(2), aj.distributed.tensor.DTensor)
        False
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> DTensor:
        raise UnsupportedError("DTensor: divided parameters are plain tensors here", {}, "use parallelize_module")


@contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors count as the same on all ranks; here they always do.

    Example:
        >>> import autojit as aj
        >>> with aj.distributed.tensor.experimental.implicit_replication():
        ...     y = aj.ones(2) + 1
    """
    yield


@record
class Shard:
    """Each rank has a part along an axis."""

    dim: int


@record
class Replicate:
    """All ranks have the same."""


class ParallelStyle:
    """How a layer is divided."""

    def apply(self, module: Module, group: ProcessGroup, src: int | None) -> None:
        """Divide a layer."""
        raise NotImplementedError


class _Divided(Linear):
    """A linear layer whose weight is one rank's part, along ``axis``. State dicts have whole parameters."""

    axis: int

    def _divide(self, group: ProcessGroup, style: Any, src: int | None) -> None:
        extent = self.weight.shape[self.axis]
        if extent % group.size():
            raise ShapeError(
                f"{type(style).__name__}: the ranks divide the axis equally",
                {"weight": self.weight, "axis": self.axis, "ranks": group.size()},
            )
        if src is not None:
            with no_grad():
                for p in self.parameters():
                    broadcast(p, group=group, group_src=src)
        self._group, self._style = group, style
        for name in self._axes():
            whole: Parameter = getattr(self, name)
            self._parameters[name] = Parameter(self._part(whole, self._axes()[name]), whole.requires_grad)
        self.register_state_dict_post_hook(_show_whole)
        self.register_load_state_dict_pre_hook(_take_part)

    def _axes(self) -> dict[str, int]:
        """The parameters that are divided, and along which axis."""
        found = {"weight": self.axis}
        if self.axis == 0 and self.bias is not None:
            found["bias"] = 0
        return found

    def _part(self, whole: Tensor, axis: int) -> Tensor:
        return whole.detach().chunk(self._group.size(), axis)[self._group.rank()].clone()

    def _own(self, x: Tensor, axis: int) -> Tensor:
        """This rank's part of a replicated tensor along an axis."""
        rows = x.unflatten(axis, (self._group.size(), -1)).movedim(axis if axis >= 0 else axis - 1, 0)
        return functional.own_part(rows, group=self._group)

    def _whole(self, parts: Tensor, axis: int) -> Tensor:
        """The whole tensor, replicated, of its parts along an axis."""
        rows = functional.all_gather(parts, group=self._group)
        first, last = (axis - 1, axis) if axis < 0 else (axis, axis + 1)
        return rows.movedim(0, first).flatten(first, last)


class ColumnParallelLinear(_Divided):
    """Some rows of the weight, which are columns of the matrix that inputs are multiplied with."""

    axis = 0

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(self._style.input_layouts, Shard):
            input = self._whole(input, self._style.input_layouts.dim)
        y = F.linear(functional.pvary(input, group=self._group), self.weight, self.bias)
        return self._whole(y, -1) if isinstance(self._style.output_layouts, Replicate) else y


class RowParallelLinear(_Divided):
    """Some columns of the weight, for a part of the inputs."""

    axis = 1

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(self._style.input_layouts, Replicate):
            input = self._own(input, -1)
        y = functional.all_reduce(F.linear(input, self.weight), group=self._group)
        y = y if self.bias is None else y + self.bias
        return self._own(y, self._style.output_layouts.dim) if isinstance(self._style.output_layouts, Shard) else y


class _LinearStyle(ParallelStyle):
    kind: type[_Divided]
    default_input: Any
    default_output: Any

    def __init__(self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True) -> None:
        self.input_layouts = self.default_input if input_layouts is None else input_layouts
        self.output_layouts = self.default_output if output_layouts is None else output_layouts
        if not use_local_output:
            raise UnsupportedError(f"{type(self).__name__}: outputs are plain tensors", {}, "use_local_output=True")

    def apply(self, module: Module, group: ProcessGroup, src: int | None) -> None:
        if type(module) is not Linear:
            raise UnsupportedError(
                f"{type(self).__name__} currently only supports nn.Linear", {"module": type(module).__name__}
            )
        module.__class__ = self.kind
        module._divide(group, self, src)


class ColwiseParallel(_LinearStyle):
    """Divide a linear layer by its outputs: whole inputs, parts of the outputs along the last axis."""

    kind, default_input, default_output = ColumnParallelLinear, Replicate(), Shard(-1)


class RowwiseParallel(_LinearStyle):
    """Divide a linear layer by its inputs: parts of the inputs along the last axis, whole outputs."""

    kind, default_input, default_output = RowParallelLinear, Shard(-1), Replicate()


def parallelize_module(
    module: Module,
    device_mesh: Any = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide layers of a module among the ranks of a mesh of one dimension; returns the module.

    Args:
        parallelize_plan: a style for the module itself, or styles by the names of modules in it (``"layers.*.up"``).
        src_data_rank: whose parameters are divided; None: each rank's own.

    Raises:
        ArgumentError: the plan names no module.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        >>> mesh = aj.distributed.init_device_mesh("cpu", (1,))
        >>> mlp = aj.nn.Sequential(aj.nn.Linear(4, 8), aj.nn.ReLU(), aj.nn.Linear(8, 2))
        >>> mlp = parallelize_module(mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        >>> tuple(mlp(aj.ones(3, 4)).shape)
        (3, 2)
        >>> aj.distributed.destroy_process_group()
    """
    group = member_of(device_mesh, "parallelize_module")
    if group is None:
        raise ArgumentError("parallelize_module: this process is not in the mesh", {"mesh": device_mesh})
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.apply(module, group, src_data_rank)
        return module
    named = dict(module.named_modules())
    for pattern, style in (parallelize_plan or {}).items():
        found = [child for name, child in named.items() if name and fnmatch(name, pattern) and _depth(name, pattern)]
        if not found:
            raise ArgumentError(
                "parallelize_module: the plan names no module",
                {"name": pattern},
            )
        for child in found:
            style.apply(child, group, src_data_rank)
    return module


def _depth(name: str, pattern: str) -> bool:
    return name.count(".") == pattern.count(".")


def _show_whole(module: Any, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for name, axis in module._axes().items():
        if prefix + name in state:
            with no_grad():
                state[prefix + name] = module._whole(state[prefix + name].detach(), axis)


def _take_part(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, axis in module._axes().items():
        whole = state.get(prefix + name)
        if whole is not None:
            state[prefix + name] = module._part(whole, axis)
