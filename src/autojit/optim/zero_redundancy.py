"""ZeroRedundancyOptimizer: every rank keeps the state of some parameters, moves these, and sends them to the others.

The optimiser inside has all parameters in its groups, so that schedules and state dicts are those of one rank; it moves
the own ones, since it sees no gradient of the others. All ranks make the same broadcasts: one per owner, dtype, device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import autojit as aj
from autojit.core.errors import ArgumentError, UnsupportedError, UsageError
from autojit.distributed.buckets import assigned, flattened, taken_apart
from autojit.distributed.collectives import broadcast
from autojit.distributed.groups import member_of
from autojit.distributed.objects import gather_object
from autojit.optim.optimizer import Closure, Optimizer
from autojit.tensor import Tensor

BROADCAST_MB = 250.0  # torch's
_SHARED = ("_step_pre_hooks", "_step_post_hooks", "_state_hooks", "_made_in")


class ZeroRedundancyOptimizer(Optimizer):
    """An optimiser whose state is divided among the ranks.

    Args:
        optimizer_class: what moves the parameters; its state is made for about one of ``world_size`` parts.
        process_group: among whom; all ranks by default.
        defaults: the options of ``optimizer_class``.

    Raises:
        ValueError: there is no process group.

    Example:
        >>> import autojit as aj
        >>> aj.distributed.init_process_group()
        >>> weight = aj.nn.Parameter(aj.ones(2))
        >>> optimizer = aj.distributed.optim.ZeroRedundancyOptimizer([weight], aj.optim.SGD, lr=0.5)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.tolist()
        [0.5, 0.5]
        >>> aj.distributed.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        group = member_of(process_group, "ZeroRedundancyOptimizer")
        if group is None:
            raise ArgumentError("ZeroRedundancyOptimizer: this process is not in the group", {"group": process_group})
        if overlap_with_ddp:
            raise UnsupportedError("ZeroRedundancyOptimizer: overlap_with_ddp is not there", {}, "leave it out")
        self.process_group = group
        self.optim = optimizer_class(params, **defaults)
        self.defaults = self.optim.defaults
        self.__dict__.update({name: vars(self.optim)[name] for name in _SHARED})
        self._whole: dict[str, Any] | None = None
        self._divide()

    def _divide(self) -> None:
        """Give every parameter to the rank that has least so far, the largest first."""
        loads = [0] * self.process_group.size()
        self._owned: list[list[Tensor]] = [[] for _ in loads]
        for group in self.optim.param_groups:
            for p in sorted(group["params"], key=Tensor.numel, reverse=True):
                owner = loads.index(min(loads))
                loads[owner] += p.numel()
                self._owned[owner].append(p)
        mine = {id(p) for p in self._owned[self.process_group.rank()]}
        self._others = [p for group in self.optim.param_groups for p in group["params"] if id(p) not in mine]

    @property
    def param_groups(self) -> Any:
        """The groups of the optimiser inside: all parameters."""
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self.optim.param_groups = groups

    @property
    def state(self) -> Any:
        """The state of this rank's parameters."""
        return self.optim.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optim.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; parameters are divided again, so it is refused once there is state."""
        if self.optim.state:
            raise UsageError(
                "ZeroRedundancyOptimizer: no group can be added once there is state",
                {},
                "add it before the first step",
            )
        self.optim.add_param_group(param_group)
        self._divide()

    def step(self, closure: Closure | None = None) -> Any:
        """Move the own parameters, and take those of the others from them; ``closure`` recomputes the loss first."""
        loss = None
        if closure is not None:
            with aj.enable_grad():
                loss = closure()
        hidden = [(p, p.grad) for p in self._others]
        for p, _ in hidden:
            p.grad = None
        try:
            self.optim.step()
        finally:
            for p, grad in hidden:
                p.grad = grad
        with aj.no_grad(), self.process_group.for_purpose("parameters of ZeroRedundancyOptimizer"):
            for owner, owned in enumerate(self._owned):
                for bucket in assigned(owned, [BROADCAST_MB]):
                    self._send(owner, [owned[k] for k in bucket])
        return loss

    vars(step)["_has_step_hooks"] = True  # the optimiser inside runs them, and is what a compiled step follows

    @property
    def _step_calls(self) -> int:  # type: ignore[override]
        return self.optim._step_calls

    @property
    def _is_captured(self) -> bool:  # type: ignore[override]
        return self.optim._is_captured

    def _send(self, owner: int, parameters: Sequence[Tensor]) -> None:
        vector = flattened(parameters)
        broadcast(vector, group=self.process_group, group_src=owner)
        for p, moved in zip(parameters, taken_apart(vector, parameters), strict=True):
            p.copy_(moved)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all ranks to one of them; all call it, before that one calls `state_dict`.

        Args:
            to: the rank, by its number in the job.
        """
        is_target = self.process_group.ranks[self.process_group.rank()] == to
        every: list[Any] | None = [None] * self.process_group.size() if is_target else None
        gather_object(self.optim.state_dict(), every, dst=to, group=self.process_group)
        self._whole = None
        if every is not None:
            state = {number: values for part in every for number, values in part["state"].items()}
            self._whole = {"state": dict(sorted(state.items())), "param_groups": every[0]["param_groups"]}

    def state_dict(self) -> dict[str, Any]:
        """The state of all ranks, as the optimiser of one rank would give it.

        Raises:
            RuntimeError: `consolidate_state_dict` has not brought it here.
        """
        if self._whole is None:
            raise UsageError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to=...)` "
                "on all ranks beforehand if you meant to save the global state.",
                {"rank": self.process_group.rank()},
                "or save optimizer.optim.state_dict() by distributed.checkpoint.save",
            )
        return self._whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gives: of its state, this rank's part."""
        params = [p for group in self.optim.param_groups for p in group["params"]]
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        mine = {id(p) for p in self._owned[self.process_group.rank()]}
        kept = {number for number, p in zip(numbers, params, strict=False) if id(p) in mine}
        part = {number: values for number, values in state_dict["state"].items() if number in kept}
        self.optim.load_state_dict({**state_dict, "state": part})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget (or zero) the gradients of all parameters."""
        self.optim.zero_grad(set_to_none)

    def __repr__(self) -> str:
        return f"ZeroRedundancyOptimizer of {self.process_group.size()} ranks: {self.optim!r}"
