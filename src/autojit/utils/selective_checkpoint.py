"""Checkpoints that keep the results of some ops: the second run takes them instead of computing them again.

How to read: both runs of a checkpointed function go through a layer between ops and their computation. That of the
first run asks the policy about each result and keeps it or not; that of the second run takes the kept ones in order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from autojit.core.errors import ArgumentError, UsageError
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import replace
from autojit.history.recording import record, wants_grad
from autojit.tensor import Tensor
from autojit.tensor.state import Layer, below, carry, set_layers, state
from autojit.tensor.tensor import alias, storage_of


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's result: it is kept, or computed again when the backward pass needs it.

    There is one memory, so ``CPU_OFFLOAD`` keeps it too.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_RECOMPUTED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE, False)

SAC_IGNORED_OPS: frozenset[str] = frozenset()
"""Ops by name that policies are never asked about: none besides views, which compute nothing."""


class SelectiveCheckpointContext:
    """What a policy is told besides the op and its operands: the op's result. ``is_recompute`` is always False."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


class _Run(Layer, AbstractContextManager[None]):
    """What both runs' layers share: only ops matter to them. As a context, a layer is on top of those there are."""

    what = "a checkpointed function that keeps some results"

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept
        self.outer: list[tuple[Layer, ...]] = []  # the second run's context is entered once per backward pass

    def __enter__(self) -> None:
        self.outer.append(state.layers)
        set_layers((*state.layers, self))

    def __exit__(self, *exception: object) -> None:
        set_layers(self.outer.pop())

    def carry(self, source: Any, made: Any, with_history: bool) -> None:
        """Nothing of this layer belongs to a tensor."""
        with below(self):
            carry(source, made, with_history)

    def replace(self, x: Any, new: Any, method: str, old: Any, mark: int) -> None:
        """As without this layer."""
        with below(self):
            replace(x, new, method, old, mark)


class _Keeping(_Run):
    """The first run."""

    def __init__(self, policy: Callable[..., Any], kept: list[Any]) -> None:
        super().__init__(kept)
        self.policy = policy

    def apply(self, op: Any, operands: Sequence[Tensor]) -> Any:
        """The op; its result is kept if the policy says so."""
        with below(self):
            found = apply(op, *operands)
            if op.is_view:
                return found
            results = found if op.n_outputs != 1 else (found,)
            verdict = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=found), op, *operands)
            if verdict in _RECOMPUTED:
                self.kept.append((op.name, None))
            else:
                copies = [alias(y) for y in results]
                self.kept.append((op.name, [(copy, storage_of(copy).version) for copy in copies]))
        return found


class _Taking(_Run):
    """The second run."""

    def __init__(self, kept: list[Any], may_change: bool) -> None:
        super().__init__(kept)
        self.may_change = may_change
        self.place = 0

    def __enter__(self) -> None:
        """From the first op on."""
        self.place = 0
        super().__enter__()

    def apply(self, op: Any, operands: Sequence[Tensor]) -> Any:
        """The op, or the result that the first run kept of it."""
        with below(self):
            if op.is_view:
                return apply(op, *operands)
            place, self.place = self.place, self.place + 1
            name, entry = self.kept[place] if place < len(self.kept) else (None, None)
            if name != op.name:
                raise UsageError(
                    f"checkpoint: the second run applies {op.name} where the first applied {name or 'nothing'}",
                    fix="the function must do the same every time it is called",
                )
            if entry is None:
                return apply(op, *operands)
            results = []
            for kept, version in entry:
                if storage_of(kept).version != version and not self.may_change:
                    raise UsageError(
                        "checkpoint: Tensor cached during selective activation checkpoint has been mutated",
                        {"op": op.name, "result": kept},
                        "pass allow_cache_entry_mutation=True",
                    )
                results.append(alias(kept))
            if state.grad_enabled and any(wants_grad(t) for t in operands):
                record(op, operands, results)
        return results[0] if op.n_outputs == 1 else tuple(results)


_MADE_OF = {
    **dict.fromkeys(("addmm", "addmv", "baddbmm", "bmm", "linear", "mm", "mv"), "matmul"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution"),
}
"""By the names of functions and operators of torch's, the op that does most of their work here."""


def _op_name(chosen: Any) -> str:
    """The op that an entry of a list means: ``torch.ops.aten.mm.default`` and ``aj.mm`` mean ``matmul``."""
    if isinstance(chosen, str):
        return chosen
    named = getattr(chosen, "name", None)
    name = named if isinstance(named, str) else str(getattr(chosen, "overloadpacket", chosen).__name__)
    return _MADE_OF.get(name, name)


def _of_list(chosen: Sequence[Any]) -> Callable[..., CheckpointPolicy]:
    """The policy that keeps results of these ops: names, functions of that name, or classes of ops."""
    for each in chosen:
        if not isinstance(each, str) and not callable(each):
            raise ArgumentError(
                f"Expected op in `op_list` to be an OpOverload, a name or a function, but got: {each!r} of type "
                f"{type(each).__name__} instead."
            )
    names = {_op_name(each) for each in chosen}

    def policy(context: SelectiveCheckpointContext, op: Any, *operands: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op.name in names else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts for ``checkpoint``'s ``context_fn`` under which the results of some ops are kept.

    Args:
        policy_fn_or_list: ``policy(context, op, *operands)`` gives a ``CheckpointPolicy`` (or True to keep);
            ``op.name`` tells which op it is. Or a list of ops to keep: ``["matmul"]``, ``[aj.matmul]``.
        allow_cache_entry_mutation: take kept results even when they were changed in place since.

    Raises:
        TypeError: neither a function nor a list.

    Example:
        >>> import functools
        >>> import autojit as aj
        >>> from autojit.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
        >>> keep = functools.partial(create_selective_checkpoint_contexts, ["matmul"])
        >>> x = aj.ones(2, 2, requires_grad=True)
        >>> y = checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=keep)
        >>> y.sum().backward()
        >>> x.grad[0, 0].item() == 4 * aj.cos(aj.tensor(2.0)).item()
        True
    """
    if isinstance(policy_fn_or_list, list | tuple):
        policy: Callable[..., Any] = _of_list(policy_fn_or_list)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: list[Any] = []
    return _Keeping(policy, kept), _Taking(kept, allow_cache_entry_mutation)
