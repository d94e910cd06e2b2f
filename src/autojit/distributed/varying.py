"""Which tensors vary over the ranks, known to the program: replicated ones enter varying computations as they must.

A layer over a function's ops remembers what varies. Where a replicated tensor meets a varying one it enters by `pvary`,
which on every rank is the tensor itself, and whose gradients are summed over the ranks. So the gradients of a program
that says only what its arguments are, are those of what all ranks compute together.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.communicator import communicator
from autojit.core.errors import UsageError
from autojit.core.source import here
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import replace
from autojit.distributed.simulated import kinds_of
from autojit.ir.calls_out import graphs_of
from autojit.ir.graph import Graph
from autojit.ir.op import Op
from autojit.jit.pytree import flatten
from autojit.ops.ranks import OwnPart, Pvary
from autojit.tensor import Tensor
from autojit.tensor.state import Layer, below, state, with_layers

__all__ = ["per_rank"]


class VaryingLayer(Layer):
    """What varies over a group, by tensor object."""

    what = "a program per rank"

    def __init__(self, group: str, size: int) -> None:
        self.group, self.size = group, size
        self._varying: dict[int, Any] = {}

    def varies(self, t: Tensor) -> bool:
        """Whether a tensor varies."""
        return id(t) in self._varying

    def mark(self, t: Tensor, is_varying: bool = True) -> Tensor:
        """Remember whether a tensor varies."""
        if not is_varying:
            self._varying.pop(id(t), None)
        elif id(t) not in self._varying:
            key, known = id(t), self._varying
            self._varying[key] = weakref.ref(t, lambda _: known.pop(key, None))
        return t

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op, on replicated operands as varying ones where others vary."""
        kinds = [self.varies(t) for t in operands]
        is_varying = any(kinds)
        known: Any = op
        takes_varying = is_varying
        if op.of_ranks and known.group == self.group:
            if isinstance(op, OwnPart | Pvary) and is_varying:
                raise UsageError(f"{op.shown_name}: the tensor differs from rank to rank already", {"at": here()})
            takes_varying = known.takes_varying
            is_varying = known.varies(is_varying)
        elif op.calls_out and any(_replicates(graph, self.group) for graph in graphs_of(op)):
            raise UsageError(
                "per_rank: a branch or loop has a collective in it whose result is the same on all ranks",
                {"op": op.name, "at": here()},
                "give it replicated=False, or write pvary where its result meets what varies, without per_rank",
            )
        with below(self):
            given = [self._varied(t) if takes_varying and not k else t for t, k in zip(operands, kinds, strict=True)]
            found: Any = apply(op, *given)
        for y in found if isinstance(found, tuple) else (found,):
            self.mark(y, is_varying)
        return found

    def _varied(self, t: Tensor) -> Tensor:
        return apply(Pvary(self.group, self.size), t)

    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """Another object for a value is of its kind."""
        self.mark(made, self.varies(source))

    def replace(self, x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
        """Write in place: a tensor is of the kind of what it holds."""
        if self.varies(x) and not self.varies(new):
            with below(self):
                new = self._varied(new)
        with below(self):
            replace(x, new, method, old, mark)
        self.mark(x, self.varies(x) or self.varies(new))


def _replicates(graph: Graph, group: str) -> bool:
    """Whether something in a graph makes a replicated value of a varying one."""
    for node in graph.nodes:
        op: Any = node.op
        if op.of_ranks and op.group == group and not op.varies(True):
            return True
        if op.calls_out and any(_replicates(inner, group) for inner in graphs_of(op)):
            return True
    return False


def per_rank(
    function: Callable[..., Any], varying: bool | Sequence[bool] = True, group: str = "world"
) -> Callable[..., Any]:
    """``function`` with the knowledge which of its arguments every rank has its own of.

    Args:
        function: of nests of tensors; collectives in it are those of `autojit.distributed.functional`. Tensors that it
            closes over are the same on all ranks.
        varying: of every argument, or of all, whether it varies.
        group: the ranks.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed import functional
        >>> def gradient(world):
        ...     weight, data = aj.tensor(2.0, requires_grad=True), aj.tensor(1.0 + world.rank)
        ...     loss = per_rank(lambda w, x: functional.all_reduce((w * x) ** 2), (False, True))(weight, data)
        ...     loss.backward()
        ...     return weight.grad
        >>> aj.distributed.run_ranks(2, gradient)
        [tensor(20.), tensor(20.)]
    """

    def run(*arguments: Any) -> Any:
        layer = VaryingLayer(group, communicator(group).size)
        leaves, tree = flatten(arguments)
        kinds = kinds_of("per_rank", arguments, varying)
        given = [_entered(layer, leaf) if kind else leaf for leaf, kind in zip(leaves, kinds, strict=True)]
        with with_layers((*state.layers, layer)):
            return function(*tree.unflatten(given))

    return run


def _entered(layer: VaryingLayer, leaf: Any) -> Any:
    return layer.mark(leaf) if isinstance(leaf, Tensor) else leaf
