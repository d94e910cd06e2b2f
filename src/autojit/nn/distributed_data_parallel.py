"""DistributedDataParallel: one replica of a module per process, whose gradients are averaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from autojit.autograd.grad_mode import no_grad
from autojit.core.errors import ArgumentError, UnsupportedError, UsageError
from autojit.distributed.collectives import broadcast
from autojit.distributed.groups import ProcessGroup, member_of
from autojit.distributed.objects import all_gather_object
from autojit.nn.gradient_reducer import CommHook, Reducer
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter, UninitializedParameter
from autojit.nn.uneven_inputs import announced, check_all_active, joined, sync_from_active
from autojit.tensor import Tensor
from autojit.tensor.state import state

__all__ = ["DistributedDataParallel"]

_MOST_SHOWN = 3  # differing parameters in a message


class DistributedDataParallel(Module):
    """The module under ``.module``; every rank has one, and calls it with its own part of a batch.

    All begin with the parameters and buffers of rank 0. ``backward`` leaves the average of the ranks' gradients in
    every ``.grad``, so replicas stay equal. Inside of a compiled step the averaging is part of the step.

    Args:
        process_group: among whom; all ranks by default.
        bucket_cap_mb: gradients are averaged in pieces of this size, 25 by default, the first one smaller.
        find_unused_parameters: look at every pass for parameters that it does not use; without, they are an error.
        broadcast_buffers: let all have the buffers of rank 0 before every forward pass; ``forward_sync_buffers``.
        static_graph: as ``find_unused_parameters``.
        gradient_as_bucket_view: of no effect: gradients have memory of their own.

    Raises:
        ValueError: `init_process_group` has not been called; devices are named for a module of the CPU.
        UsageError: no parameter requires a gradient; the ranks have different modules.

    Example:
        >>> import autojit as aj
        >>> aj.distributed.init_process_group()
        >>> model = aj.nn.parallel.DistributedDataParallel(aj.nn.Linear(2, 1))
        >>> list(model.state_dict())
        ['module.weight', 'module.bias']
        >>> aj.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        group = member_of(process_group if device_mesh is None else device_mesh, "DistributedDataParallel")
        if group is None:
            raise ArgumentError("DistributedDataParallel: this process is not in the group", {"group": process_group})
        _refuse(delay_all_reduce_named_params, param_to_hook_all_reduce, mixed_precision)
        self.module = module
        self.dim = dim
        self.process_group = group
        named = _parameters(module)
        self.device_ids, self.output_device = _devices(list(named.values()), device_ids, output_device)
        self.device = next(iter(named.values())).device
        self.device_type = self.device.type
        syncs = broadcast_buffers is not False if forward_sync_buffers is None else forward_sync_buffers
        self.forward_sync_buffers = self.broadcast_buffers = syncs
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = True
        self.is_uneven = self.throws_early = False  # see `join`
        self.divides_by_all = True
        trained = {name: p for name, p in named.items() if p.requires_grad}
        if init_sync:
            _check_equal(module, trained, group)
            self._sync(list(named.values()) + self.buffers_to_sync())
        limits = list(bucket_cap_mb_list or [25.0 if bucket_cap_mb is None else bucket_cap_mb])
        self.reducer = Reducer(trained, group, limits, find_unused_parameters or static_graph)
        self.reducer.is_wanted = lambda: self.require_backward_grad_sync

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        is_averaged = self.require_backward_grad_sync
        divisor: Any = self.process_group.size()
        if self.is_uneven and state.grad_enabled and is_averaged:
            active = announced(self.process_group, True)
            check_all_active(active, self.throws_early)
            sync_from_active(self.buffers_to_sync(), active, self.process_group)
            divisor = divisor if self.divides_by_all else active.sum()
        elif not self.is_uneven and (is_averaged or not state.grad_enabled):
            self._sync(self.buffers_to_sync())
        outputs = self.module(*inputs, **kwargs)
        if state.grad_enabled and is_averaged:
            self.reducer.begin(outputs)
            self.reducer.divisor = divisor
        elif state.grad_enabled:
            self.reducer.skip()
        return outputs

    def buffers_to_sync(self) -> list[Tensor]:
        """Those that all ranks have of one before a forward pass."""
        if not self.forward_sync_buffers:
            return []
        ignored = getattr(self.module, "_ddp_params_and_buffers_to_ignore", ())
        return [b for name, b in self.module.named_buffers() if name not in ignored]

    def _sync(self, tensors: Sequence[Tensor]) -> None:
        """Let all ranks have the tensors of the group's first."""
        with no_grad(), self.process_group.for_purpose("parameters and buffers of DistributedDataParallel"):
            for t in tensors:
                broadcast(t, group=self.process_group, group_src=0)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forward passes inside leave gradients as they are on each rank; later ones average what has come together."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: CommHook) -> None:
        """Let ``hook(state, bucket)`` combine the gradients of a bucket in place of an average.

        It gives the vector that takes the place of ``bucket.buffer()``, or a future of it.

        Raises:
            TypeError: the hook cannot be called.
            UsageError: there is one.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise UsageError("register_comm_hook can only be called once.")
        self.reducer.hook = (state, hook)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[Any]:
        """A block in which ranks may have different numbers of batches: who has none takes part with zeros.

        All ranks leave it together, with the parameters and buffers of a rank that had most batches. In it, every
        averaged forward pass has its backward pass, and other collectives are the program's own affair. What ranks
        capture in it is not compared.

        Args:
            divide_by_initial_world_size: an average is the sum divided by the number of ranks; False: of those that
                have a batch.
            enable: False: ranks call the module equally often.
            throw_on_early_termination: raise on all ranks when one has no batch any more; not in compiled steps.

        Raises:
            RuntimeError: a rank has no batch any more, and that is asked for.

        Example:
            >>> import autojit as aj
            >>> aj.distributed.init_process_group()
            >>> model = aj.nn.parallel.DistributedDataParallel(aj.nn.Linear(2, 1))
            >>> with model.join():
            ...     for x in aj.ones(3, 4, 2):
            ...         model(x).sum().backward()
            >>> model.module.bias.grad
            tensor([12.])
            >>> aj.distributed.destroy_process_group()
        """
        if not enable or self.process_group.size() == 1:
            return nullcontext(self)
        return joined(self, divide_by_initial_world_size, throw_on_early_termination)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any = None) -> tuple[Any, Any]:
        """Inputs are on their device already."""
        return inputs, kwargs

    def gather(self, outputs: Any, output_device: Any = None) -> Any:
        """So are outputs."""
        return outputs

    def _set_static_graph(self) -> None:
        self.static_graph = self.reducer.finds_unused = True


def _refuse(delayed: object, hooked: object, precision: object) -> None:
    for name, given in (
        ("delay_all_reduce_named_params", delayed),
        ("param_to_hook_all_reduce", hooked),
        ("mixed_precision", precision),
    ):
        if given is not None:
            raise UnsupportedError(f"DistributedDataParallel: {name} is not there", {name: given}, "leave it out")


def _parameters(module: Module) -> dict[str, Parameter]:
    ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
    found = {name: p for name, p in module.named_parameters() if name not in ignored}
    if any(isinstance(p, UninitializedParameter) for p in found.values()):
        raise UsageError(
            "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward "
            "pass to correctly initialize the modules"
        )
    if not any(p.requires_grad for p in found.values()):
        raise UsageError(
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
        )
    return found


def _devices(parameters: Sequence[Parameter], device_ids: Any, output_device: Any) -> tuple[Any, Any]:
    if device_ids is not None and len(device_ids) > 1:
        raise ArgumentError("device_ids can only be None or contain a single element.", {"device_ids": device_ids})
    kinds = {p.device.type for p in parameters}
    if len(kinds) > 1:
        raise ArgumentError("DistributedDataParallel's input module must be on the same type of devices", {"on": kinds})
    if not device_ids or len({p.device for p in parameters}) > 1 or kinds == {"cpu"}:
        if device_ids or output_device:
            raise ArgumentError(
                "DistributedDataParallel device_ids and output_device arguments only work with single-device/"
                "multiple-device GPU modules or CPU modules",
                {"device_ids": device_ids, "output_device": output_device},
                "leave them out for a module of the CPU",
            )
        return None, None
    return list(device_ids), device_ids[0] if output_device is None else output_device


def _check_equal(module: Module, parameters: dict[str, Parameter], group: ProcessGroup) -> None:
    """Refuse modules that are not the same on all ranks; all of them say so."""
    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in parameters.items()]
    every: list[Any] = [None] * group.size()
    all_gather_object(every, mine, group)
    for rank, theirs in enumerate(every):
        if theirs != every[0]:
            differing = [pair for pair in zip(every[0], theirs, strict=False) if pair[0] != pair[1]][:_MOST_SHOWN]
            raise UsageError(
                f"DDP expects same model across all ranks, but Rank {rank} has {len(theirs)} params, while rank 0 has "
                f"{len(every[0])} params with other names, shapes or dtypes",
                {"module": type(module).__name__, "differing": differing or "their number"},
            )
