"""Programs for many ranks as one function: without MPI, without threads, to a thousand ranks and more.

What varies over the ranks has them as its first axis, what is replicated is there once: a batch, along whose axis
collectives are ordinary ops. The function is the global one, so its gradients are what the ranks' own must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from autojit.core.communicator import ThreadAsRank
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.dispatch.batch_layer import BatchLayer
from autojit.functions.factories import arange
from autojit.ir.op import Op
from autojit.jit.pytree import flatten
from autojit.ops.collectives import Wait
from autojit.ops.ranks import OwnPart, Pvary, Rank, for_all, simulating
from autojit.tensor import Tensor
from autojit.tensor.state import below, state, with_layers
from autojit.tensor.tensor import type_of

__all__ = ["kinds_of", "simulated"]


class RankLayer(BatchLayer):
    """The ranks of a group as a batch: what varies is batched."""

    what = "a simulated group"

    def __init__(self, group: str, size: int) -> None:
        super().__init__(size, "same")
        self.group = group

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op for all ranks."""
        known: Any = op
        if not op.of_ranks or known.group != self.group:
            with simulating(self.group):  # also in the bodies of branches and loops
                return super().apply(op, operands)
        with below(self):
            y, is_varying = self._of_all(known, operands)
        return self.element(y) if is_varying else y

    def _of_all(self, op: Any, operands: Sequence[Tensor]) -> tuple[Tensor, bool]:
        if isinstance(op, Rank):
            return arange(self.size, device=str(op.device)), True
        x = operands[0]
        full = self.full(x)
        if isinstance(op, Wait):  # a simulated collective is done when it is begun
            return (x, False) if full is None else (full, True)
        if isinstance(op, Pvary | OwnPart) and full is None:
            return (x if isinstance(op, OwnPart) else for_all(x, self.size)), True
        if isinstance(op, OwnPart):
            raise UsageError("own_part: the tensor differs from rank to rank already", {"x": x}, "index it by the rank")
        found: tuple[Tensor, bool] = op.stacked(self.repeated(x))
        return found


class _Stacked:
    """What collectives find of a group while a program for all of its ranks is recorded: its size."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size

    def native(self) -> None:
        """There is nobody to call."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UsageError(
            f"simulated: the program asks for {name!r} of a group whose ranks are simulated all at once",
            fix="use autojit.distributed.functional in it; functional.rank(x) is the number of the rank",
        )


def simulated(
    function: Callable[..., Any], size: int, varying: bool | Sequence[bool] = True, group: str = "world"
) -> Callable[..., Any]:
    """``function``, which every rank of a group would call, for all of them at once.

    Args:
        function: of nests of tensors; collectives in it are those of `autojit.distributed.functional`.
        size: the number of ranks.
        varying: of every argument, or of all, whether each rank has its own: then its tensors have the ranks as their
            first axis. The others are the same on all ranks, as are tensors that the function closes over.
        group: its name.

    Returns:
        A function of such arguments. Results that vary have the ranks as their first axis; those that are the same on
        all ranks are there once.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed import functional
        >>> loss = simulated(lambda w, x: functional.all_reduce((w * x) ** 2), 3, varying=(False, True))
        >>> w = aj.tensor(2.0, requires_grad=True)
        >>> total = loss(w, aj.tensor([1.0, 2.0, 3.0]))
        >>> total.backward()
        >>> total.detach(), w.grad
        (tensor(56.), tensor(56.))
    """

    def run(*arguments: Any) -> Any:
        leaves, tree = flatten(arguments)
        kinds = kinds_of("simulated", arguments, varying)
        layer = RankLayer(group, size)
        given = [_entered(layer, leaf, kind) for leaf, kind in zip(leaves, kinds, strict=True)]
        ranks: Any = _Stacked(group, size)
        with ThreadAsRank(ranks), with_layers((*state.layers, layer)):
            results, shape = flatten(function(*tree.unflatten(given)))
        found = [result if (full := layer.full(result)) is None else full for result in results]
        layer.close()
        return shape.unflatten(found)

    return run


def kinds_of(name: str, arguments: Sequence[Any], varying: bool | Sequence[bool]) -> list[bool]:
    """Of every leaf of the arguments, whether it varies.

    Raises:
        ArgumentError: ``varying`` does not say it of as many arguments.
    """
    flags = [varying] * len(arguments) if isinstance(varying, bool) else list(varying)
    if len(flags) != len(arguments):
        raise ArgumentError(f"{name}: there are {len(arguments)} arguments, and varying says {len(flags)}")
    return [flag for argument, flag in zip(arguments, flags, strict=True) for _ in flatten(argument)[0]]


def _entered(layer: RankLayer, leaf: Any, is_varying: bool) -> Any:
    """What the program of a rank gets for a leaf of an argument."""
    if not is_varying or not isinstance(leaf, Tensor):
        return leaf
    shape = type_of(leaf).shape
    if not shape or shape[0] != layer.size:
        raise ShapeError(
            f"simulated: a varying argument has a part for each of the {layer.size} ranks along its first axis",
            {"x": leaf},
        )
    return layer.element(leaf)
