"""Gradients that go on through the caller's histories of arguments: what is asked before a step writes anything.

They set off when the step has run. So it is too late then to find a history that is freed or spoilt, and what the
histories keep must not be what the step has changed by then. A step that asks for the gradients of some tensors
(``autograd.grad``, ``backward(inputs=)``) needs them itself: it serves only calls whose histories do not lead there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from autojit.autograd.function_context import BackwardCFunction
from autojit.autograd.hook_calls import has_tensor_hooks
from autojit.history.op_node import NotImplementedNode, OpNode
from autojit.history.recording import edge_of
from autojit.history.saved import changed_error, freed_error
from autojit.jit.arguments import ArgumentLeaf
from autojit.jit.histories import freed_node, history_of
from autojit.jit.line_by_line import GivenUp, Onward
from autojit.jit.trace import Trace
from autojit.jit.trace_passes import PassToTargets, no_check
from autojit.tensor.node import AccumulateGrad, Edge, Node
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, type_of


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
            raise Onward(f"{_history(t)} to parameters whose .grad the step uses")
        if any(id(saved._storage) in written for _, saved, _, _ in kept):
            raise Onward(f"{_history(t)} which keeps what the step changes in place")


def _history(t: Tensor) -> str:
    return f"the history of an argument {type_of(t)}"


class _Place(NamedTuple):
    """A tensor among the arguments of a call, or the ``.grad`` of one."""

    number: int
    is_grad: bool

    def of(self, leaves: Sequence[Any]) -> Tensor:
        found: Tensor = leaves[self.number]._grad if self.is_grad else leaves[self.number]
        return found


class AskedOutside:
    """Passes of a capture that give the gradients of some tensors alone, and see no histories of arguments."""

    def __init__(self, trace: Trace, arguments: Sequence[ArgumentLeaf]) -> None:
        self.places: dict[int, _Place] = {}  # by id of the node that stands for a history, or of the leaf
        for k, leaf in enumerate(arguments):
            for shell, entry, is_grad in ((leaf.shell, leaf.entry, False), (leaf.grad_shell, leaf.grad_entry, True)):
                if shell is not None and entry is not None:
                    begins = shell if entry._grad_fn is None else entry._grad_fn
                    self.places[id(begins)] = _Place(k, is_grad)
        met = [any(_of_edge(edge)[0] in self.places for edge in p.targets) for p in trace.to_targets]
        self.passes = [p for p, is_met in zip(trace.to_targets, met, strict=True) if p.ends or (p.outside and is_met)]

    def check(self, leaves: Sequence[Any]) -> None:
        """Before a call.

        Raises:
            Onward: only line by line are the gradients those that the function asks for.
        """
        for found in self.passes:
            ends = [self.places[id(node)] for node in found.ends]
            for edge in found.targets:
                self._check_target(edge, found, ends, leaves)

    def _check_target(self, edge: Edge, found: PassToTargets, ends: Sequence[_Place], leaves: Sequence[Any]) -> None:
        place = self.places.get(_of_edge(edge)[0])
        given = None if place is None else place.of(leaves)
        if given is not None:
            own = edge_of(given)
            if own is None:
                return
            is_kept = found.accumulates or edge[0].retained is not None
            edge = own
            if given._grad_fn is not None and (is_kept or has_tensor_hooks(given._grad_fn)):
                raise Onward(f"{_history(given)} which has hooks, or is where the step keeps a gradient")
        target = _of_edge(edge)
        leading = [t for end, t in ((end, end.of(leaves)) for end in ends) if end != place and _leads_to(t, target)]
        if leading:
            raise Onward(f"{_history(leading[0])} to a tensor whose gradient the step asks for")
        if given is not None and any(_of_edge((node, target[1])) == target for node in found.outside):
            raise Onward(f"a history outside to an argument {type_of(given)} whose gradient the step asks for")


@contextmanager
def asking_outside(trace: Trace, made: Sequence[ArgumentLeaf], leaves: Sequence[Any]) -> Iterator[None]:
    """While a function is captured: a pass that the call needs a history outside for ends the capture before it begins,
    as it would use up what it goes through.

    Raises:
        LineByLine: the function did something that only eager mode can.
    """

    def check() -> None:
        asked = AskedOutside(trace, made)
        try:
            asked.check(leaves)
        except Onward as found:
            found.asked = asked
            trace.give_up(found)

    trace.before_pass = check
    try:
        yield
    except GivenUp as found:
        raise found.reason from None
    finally:
        trace.before_pass = no_check  # it has the arguments
    if trace.given_up is not None:
        raise trace.given_up


def _of_edge(edge: Edge) -> tuple[int, int]:
    """The same for edges to the same result; for those to leaves, whose nodes are made again, the leaf's id."""
    node, number = edge
    return (id(node.variable), 0) if isinstance(node, AccumulateGrad) else (id(node), number)


def _leads_to(t: Tensor, target: tuple[int, int]) -> bool:
    own = edge_of(t)
    edges = [own, *(edge for node in history_of([t]) for edge in node.edges)]
    return any(edge is not None and _of_edge(edge) == target for edge in edges)


def storages_of(leaves: Sequence[Any], changed: Collection[int]) -> Iterator[Storage | None]:
    """The storages of those arguments that are numbered ``changed``."""
    return (leaf._storage for k, leaf in enumerate(leaves) if k in changed and isinstance(leaf, Tensor))


def _kept_by(node: Node) -> Iterator[tuple[Tensor, int, int]]:
    """What a node keeps: the tensor, its version then, its number among the results (-1: an operand)."""
    if isinstance(node, OpNode):
        n = len(node.primals)
        places = ((entry, k, k - n if k >= n else -1) for k, entry in enumerate((*node.primals, *node.results)))
        yield from ((t, node.versions[k], result) for t, k, result in places if isinstance(t, Tensor))
    elif isinstance(node, BackwardCFunction) and not node._is_freed:
        pairs = zip(node._saved, node._versions, strict=True)
        yield from ((entry[0], v, entry[1]) for entry, v in pairs if entry is not None and isinstance(entry[0], Tensor))
