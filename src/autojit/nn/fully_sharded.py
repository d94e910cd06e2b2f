"""fully_shard: every rank keeps a part of every parameter, and of its gradient and its optimiser's state (ZeRO-3).

A parameter is its rank's part of the elements; the whole one is gathered where the module asks for it, and again in the
backward pass (`resharding`). The gradient goes back the same way: it is summed over the ranks, and each gets its part.
State dicts have whole parameters under their own names, so they fit a module that is not sharded, and any number of
ranks.
"""

from __future__ import annotations

import math
from typing import Any

import autojit as aj
from autojit.autograd.grad_mode import no_grad
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, UnsupportedError
from autojit.core.records import record
from autojit.distributed import functional
from autojit.distributed.collectives import broadcast
from autojit.distributed.groups import ProcessGroup, member_of
from autojit.nn.containers import ModuleDict
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter
from autojit.nn.resharding import gathered, reshard_after
from autojit.nn.utils import parametrize
from autojit.tensor import Tensor

__all__ = ["FSDPModule", "MixedPrecisionPolicy", "fully_shard"]


class _Sharded(type):
    def __instancecheck__(cls, given: object) -> bool:
        return isinstance(given, Module) and "_is_fully_sharded" in given.__dict__


class FSDPModule(metaclass=_Sharded):
    """What a module is that `fully_shard` was called on; its class stays as it was.

    Example:
        >>> import autojit as aj
        >>> isinstance(aj.nn.Linear(2, 2), aj.distributed.fsdp.FSDPModule)
        False
    """


@record
class MixedPrecisionPolicy:
    """In which dtypes a module would be gathered, reduced and returned. `fully_shard` takes one that asks for none.

    Example:
        >>> import autojit as aj
        >>> aj.distributed.fsdp.MixedPrecisionPolicy().param_dtype is None
        True
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


class Gathered(Module):
    """A whole parameter of its ranks' parts: the parametrisation that `fully_shard` gives every parameter."""

    def __init__(self, shape: tuple[int, ...], group: ProcessGroup) -> None:
        super().__init__()
        self.shape, self.group_name = shape, group.group_name
        self.rank, self.ranks = group.rank(), group.size()
        self.numel = math.prod(shape)
        self.each = -(-self.numel // self.ranks)

    def forward(self, part: Tensor) -> Tensor:
        """The whole; its gradients, one per rank, are averaged."""
        return gathered(self.whole(part), self.whole, part)

    def whole(self, part: Tensor) -> Tensor:
        """The ranks' parts, put together."""
        rows = functional.all_gather(part, group=self.group_name, replicated=False)
        return rows.reshape(-1)[: self.numel].reshape(self.shape)

    def right_inverse(self, whole: Tensor) -> Tensor:
        """This rank's part, with zeros behind the last element."""
        flat = whole.detach().reshape(-1)
        padded = aj.cat([flat, flat.new_zeros(self.each * self.ranks - self.numel)])
        return padded[self.rank * self.each : (self.rank + 1) * self.each].clone()


def fully_shard(
    module: Module,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Any = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    ignored_params: set[Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> Module:
    """Divide the parameters of a module, and of those in it, among the ranks; returns the module.

    Call it before the optimiser is made. The ranks begin with the parameters of rank 0. Gradients are averaged.

    Args:
        mesh: a mesh of one dimension; all ranks by default.
        reshard_after_forward: keep whole parameters in memory only while the module runs, and gather them again in the
            backward pass; True by default. Otherwise they are kept until the backward pass has used them. Numbers
            are as True.
        ignored_params: parameters that every rank keeps whole; their gradients are each rank's own.

    Raises:
        ValueError: `init_process_group` has not been called.
        UnsupportedError: a policy or a placement is asked for.

    Example:
        >>> import autojit as aj
        >>> aj.distributed.init_process_group()
        >>> model = aj.distributed.fsdp.fully_shard(aj.nn.Linear(2, 3))
        >>> [tuple(p.shape) for p in model.parameters()], tuple(model.weight.shape)
        ([(6,), (3,)], (3, 2))
        >>> aj.distributed.destroy_process_group()
    """
    for name, given in (("shard_placement_fn", shard_placement_fn), ("mp_policy", mp_policy),
                        ("offload_policy", offload_policy), ("dp_mesh_dims", dp_mesh_dims)):  # fmt: skip
        if given is not None and given != MixedPrecisionPolicy():
            raise UnsupportedError(f"fully_shard: {name} is not there", {name: given}, "leave it out")
    group = member_of(mesh, "fully_shard")
    if group is None:
        raise ArgumentError("fully_shard: this process is not in the mesh", {"mesh": mesh})
    is_resharded = reshard_after_forward is None or bool(reshard_after_forward)
    if is_resharded:
        reshard_after(module)  # also for parameters that it gives to functions, such as weights of its children
    known: dict[int, tuple[Module, str]] = {}
    ignored = {id(p) for p in ignored_params or ()}
    for child in list(module.modules()):
        if isinstance(child, parametrize.ParametrizationList):
            continue
        names = [n for n, p in child._parameters.items() if p is not None and id(p) not in ignored]
        for name in names:
            _shard(child, name, group, known)
        if names and is_resharded and child is not module:
            reshard_after(child)
        if names:
            child.register_state_dict_post_hook(_show_whole)
            child.register_load_state_dict_pre_hook(_take_part)
    module.__dict__["_is_fully_sharded"] = True  # for `FSDPModule`
    return module


def _shard(module: Module, name: str, group: ProcessGroup, known: dict[int, tuple[Module, str]]) -> None:
    parameter = module._parameters[name]
    assert parameter is not None
    first = known.setdefault(id(parameter), (module, name))
    if first != (module, name):
        _tie(module, name, first)
        return
    needs_grad = parameter.requires_grad
    with no_grad():
        broadcast(parameter, group=group, group_src=0)
    made = Gathered(tuple(parameter.shape), group)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    part = module.parametrizations[name].original
    part.requires_grad_(needs_grad)
    if needs_grad:
        part.register_hook(lambda gradient: gradient / made.ranks)


def _tie(module: Module, name: str, first: tuple[Module, str]) -> None:
    """Let a module have the sharded parameter of another under its own name, as both had the whole one."""
    delattr(module, name)
    if not parametrize.is_parametrized(module):
        parametrize._inject_class(module)
        module.parametrizations = ModuleDict()
    parametrize._inject_property(module, name)
    module.parametrizations[name] = first[0].parametrizations[first[1]]


def _sharded(module: Module) -> dict[str, Any]:
    return {
        name: listed
        for name, listed in module.parametrizations.items()
        if len(listed) == 1 and isinstance(listed[0], Gathered)
    }


def _show_whole(module: Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for name, listed in _sharded(module).items():
        part = state.pop(f"{prefix}parametrizations.{name}.original", None)
        if part is not None:
            with no_grad():
                state[prefix + name] = listed[0](part.detach())


def _take_part(module: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, listed in _sharded(module).items():
        whole = state.pop(prefix + name, None)
        if whole is not None:
            state[f"{prefix}parametrizations.{name}.original"] = listed[0].right_inverse(whole)
