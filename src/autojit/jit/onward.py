"""Gradients that go on through the caller's histories of arguments: what is asked before a step writes anything.

They set off when the step has run. So it is too late then to find a history that is freed or spoilt, and what the
histories keep must not be what the step has changed by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from autojit.autograd.function_context import BackwardCFunction
from autojit.jit.calls import Onward
from autojit.jit.histories import freed_node, history_of
from autojit.tensor.op_node import NotImplementedNode, OpNode
from autojit.tensor.saved import changed_error, freed_error
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor


def check_onward(given: Sequence[Tensor], touched: Collection[int], written: Collection[int]) -> None:
    """Before a call, for the arguments ``given`` through whose histories gradients will go on.

    ``touched`` are the leaves, by id, whose ``.grad`` the function looks at afterwards, ``written`` the storages that
    the step changes.

    Raises:
        Onward: only line by line is a gradient, or what a node keeps, there when it is asked for.
        DifferentiationError: a history is freed, or what it keeps was changed in place.
        NotImplementedError: it leads through an op that has no derivative.
    """
    for t in given:
        freed = freed_node(t)
        if freed is not None:
            raise freed_error(freed)
        nodes = history_of([t])
        for node in nodes:
            if isinstance(node, NotImplementedNode):
                node.run([], ())
        kept = [(node, *entry) for node in nodes for entry in _kept_by(node)]
        for node, saved, version, result in kept:
            if saved._storage is not None and saved._storage.version != version:
                raise changed_error(node, saved, version, result)
        if any(id(getattr(node, "variable", None)) in touched for node in nodes):
            raise Onward(t, "to parameters whose .grad the step uses")
        if any(id(saved._storage) in written for _, saved, _, _ in kept):
            raise Onward(t, "which keeps what the step changes in place")


def storages_of(leaves: Sequence[Any], changed: Collection[int]) -> Iterator[Storage | None]:
    """The storages of those arguments that are numbered ``changed``."""
    return (leaf._storage for k, leaf in enumerate(leaves) if k in changed and isinstance(leaf, Tensor))


def _kept_by(node: Any) -> Iterator[tuple[Tensor, int, int]]:
    """What a node keeps: the tensor, its version then, its number among the results (-1: an operand)."""
    if isinstance(node, OpNode):
        n = len(node.primals)
        places = ((entry, k, k - n if k >= n else -1) for k, entry in enumerate((*node.primals, *node.results)))
        yield from ((t, node.versions[k], result) for t, k, result in places if isinstance(t, Tensor))
    elif isinstance(node, BackwardCFunction) and not node._is_freed:
        pairs = zip(node._saved, node._versions, strict=True)
        yield from ((entry[0], v, entry[1]) for entry, v in pairs if entry is not None and isinstance(entry[0], Tensor))
