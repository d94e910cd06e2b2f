"""Where the leaves of a step's results come from, and the tensors that a call has there.

A view is taken of such a tensor at every call, so that results alias arguments, state and each other as in eager mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autojit.core.records import record
from autojit.history.recording import edge_of
from autojit.ir.concrete import concrete
from autojit.ir.op import Ndarray, Op
from autojit.jit.severed_views import Severed
from autojit.jit.spent_results import SpentNode
from autojit.tensor.state import grad_mode
from autojit.tensor.storage import NORMAL
from autojit.tensor.tensor import Tensor, alias, wrap


@record(eq=False, frozen=False)
class Place:
    """Where an output leaf comes from.

    ``kind``: "constant" (``what`` itself), "argument" (the call's leaf ``index``), "result" (output ``index``),
    "alias" (the same without history), "number" (the Python number in output ``index``), "same" (the object of output
    leaf ``index``). ``chain`` are view
    ops applied to it; ``creation`` says where they were taken (``storage.View``). ``requires_grad``: whether the leaf
    carries history; ``aliases``: another leaf has this output;
    ``grad``: where the ``.grad`` comes from that a result kept (``retain_grad``); ``spent``: its history, which the
    step has used up, and ``ends``: the arguments that it leads to; ``is_leaf``: it is a leaf that the step has made;
    "detached" is memory of the tensor ``what`` outside, without history, and with ``is_counted_apart`` with a version
    counter of its own (``data``); ``is_stale``: a view that has no history any more, as its memory has changed since it
    was made; ``severed``: of a view whose history leads nowhere.
    """

    kind: str
    index: int = -1
    what: Any = None
    chain: tuple[Op, ...] = ()
    requires_grad: bool = False
    aliases: bool = False
    number: type = float
    creation: str = NORMAL
    grad: Place | None = None
    spent: SpentNode | None = None
    ends: tuple[int, ...] = ()
    is_leaf: bool = False
    is_stale: bool = False
    severed: Severed | None = None
    is_counted_apart: bool = False


def of_sizes(place: Place, sizes: Mapping[str, int]) -> Place:
    """The place in a call in which open sizes have these values."""
    if not place.chain and place.kind != "constant":
        return place
    return replace(place, chain=concrete(place.chain, sizes), what=concrete(place.what, sizes))


def base_of(place: Place, tensors: Sequence[Tensor], leaves: Sequence[Any]) -> Any:
    """What an output leaf is, or is a view of."""
    kind = place.kind
    if kind == "result":
        return _result_of_call(place, tensors[place.index], leaves)
    if kind == "argument":
        return leaves[place.index] if not place.chain else _tensor(leaves[place.index])
    if kind == "alias":
        return alias(_tensor(leaves[place.index]))
    if kind == "detached":
        return alias(place.what, own_version=place.is_counted_apart)
    return place.what


def _tensor(leaf: Tensor | Ndarray) -> Tensor:
    """An argument as a tensor: an array with the memory that it has."""
    return leaf if isinstance(leaf, Tensor) else wrap(leaf)


def _result_of_call(place: Place, t: Tensor, leaves: Sequence[Any]) -> Tensor:
    """A graph output as a result: with a history, without one, or one more handle of it."""
    if place.is_leaf:
        t = alias(t) if place.aliases or t._requires_grad else t
    elif place.spent is not None:
        t = _with_spent_history(t, place, leaves)
    elif t._requires_grad and not place.requires_grad:
        t = alias(t)
    elif place.aliases and not place.chain:
        t = _second_handle(t)
    return t


def _with_spent_history(t: Tensor, place: Place, leaves: Sequence[Any]) -> Tensor:
    """A result, or another handle of it where one was handed out already, with what is left of its history."""
    node = place.spent
    if node is None or t._grad_fn is node:
        return t if not place.aliases or place.chain else _second_handle(t)
    made = alias(t) if place.aliases or t._requires_grad else t
    with grad_mode(True):
        more = [edge_of(leaves[k]) for k in place.ends if isinstance(leaves[k], Tensor)]
    made._requires_grad, made._output_nr = True, 0
    made._grad_fn = node.with_ends([edge for edge in more if edge is not None]) if more else node
    return made


def _second_handle(t: Tensor) -> Tensor:
    made = alias(t)
    made._requires_grad, made._grad_fn, made._output_nr = t._requires_grad, t._grad_fn, t._output_nr
    return made
