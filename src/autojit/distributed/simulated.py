"""Programs for many ranks as one function: without MPI, without threads, to a thousand ranks and more.

What varies over the ranks has them as its first axis, what is replicated is there once. The function is the global one:
its gradients are what the ranks' own gradients must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from autojit.control_flow.body import Body
from autojit.control_flow.captured_call import CapturedCall
from autojit.core.communicator import ThreadAsRank
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.dispatch.dispatch import apply
from autojit.jit.pytree import flatten
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of
from autojit.transforms.simulated_ranks import simulated_ranks

__all__ = ["simulated"]


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
        flags = [varying] * len(arguments) if isinstance(varying, bool) else list(varying)
        if len(flags) != len(arguments):
            raise ArgumentError(f"simulated: there are {len(arguments)} arguments, and varying says {len(flags)}")
        leaves, tree = flatten(arguments)
        kinds = [flag for argument, flag in zip(arguments, flags, strict=True) for _ in flatten(argument)[0]]
        tensors = [(k, leaf) for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if not tensors:
            raise ArgumentError("simulated: no argument is a tensor")
        body = Body("simulated")
        given = list(leaves)
        for k, leaf in tensors:
            given[k] = body.input(_of_rank(leaf, kinds[k], size))
        with ThreadAsRank(_Stacked(group, size)):  # type: ignore[arg-type]
            found = body.call(function, tree.unflatten(given))
            results, shape = flatten(found)
            for result in results:
                body.output(result)
        outside = body.close()
        if body.written:
            raise UsageError("simulated: the function changes a tensor from outside", fix="return the new value")
        graph = CapturedCall.of(body, body.inputs, body.outputs).graph
        over = [kinds[k] for k, _ in tensors] + [False] * len(outside)
        made, _ = simulated_ranks(graph, group, size, over)
        call = CapturedCall(made)
        outputs = apply(call, *(leaf for _, leaf in tensors), *outside)
        return shape.unflatten([outputs] if call.n_outputs == 1 else list(outputs))

    return run


def _of_rank(leaf: Tensor, is_varying: bool, size: int) -> Any:
    """The type of what one rank has."""
    whole = type_of(leaf)
    if not is_varying:
        return whole
    if not whole.shape or whole.shape[0] != size:
        raise ShapeError(
            f"simulated: the first axis of a varying argument has a part for each of the {size} ranks", {"x": leaf}
        )
    return whole.with_shape(whole.shape[1:])
