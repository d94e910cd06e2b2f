"""Results of a captured function from which it has computed others, and those who look at them: hooks and the like.

To the caller's history such a function is one op, whose rule takes the cotangents of all results. In eager mode a
result's gradient also holds what comes from results that were computed from it, inside the function. So where somebody
looks at one, that part is computed and lent to its cotangent while they look. The rule gets the cotangent without it,
and with what hooks have made of it: rules are linear.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Any, NamedTuple

from autojit.autograd.hook_calls import through_hooks
from autojit.functions.elementwise import add, sub
from autojit.history.op_node import OpNode
from autojit.tensor.node import ZERO, Edge, Node

__all__ = ["NOTHING", "Lent", "give_back", "lend", "with_outer"]


class Lent(NamedTuple):
    """What was lent, by number of a result: its own cotangent, what came from inside, and their sum; and the results
    whose hooks have run already.
    """

    parts: dict[int, tuple[Any, Any, Any]]
    hooked: set[int]


NOTHING = Lent({}, set())


def with_outer(targets: Collection[Edge]) -> set[Edge]:
    """Targets, and the results of captured functions that were computed from those among them."""
    found = set(targets)
    for node, k in targets:
        if isinstance(node, OpNode) and node.op.is_call:
            found.update([(node, j) for j in node.op.leading_to(k)])
    return found


def lend(node: Node, grads: list[Any], targets: Container[Edge] | None) -> Lent:
    """Add to the cotangents of results that are looked at what comes to them from inside.

    Hooks of one from which another that is looked at was computed come first: what they make of it goes there.
    """
    if not isinstance(node, OpNode) or not node.op.is_call:
        return NOTHING
    hooks = {k: found for k, found in (node.tensor_hooks or {}).items() if found}
    seen = {*hooks, *(node.retained or ()), *(k for k in range(len(grads)) if targets and (node, k) in targets)}
    lent = Lent({}, set())
    bars = list(grads)
    for k in sorted(seen, key=lambda k: len(node.op.leading_to(k))):  # outer ones first
        own = bars[k]
        inside = _from(node, bars, k)
        total = own if inside is None else inside if own is None or own is ZERO else add(own, inside)
        grads[k] = total
        if k in hooks and total is not None and total is not ZERO and any(k in node.op.leading_to(j) for j in seen):
            grads[k] = through_hooks(hooks[k], total)
            lent.hooked.add(k)
        if inside is not None:
            lent.parts[k] = own, inside, total
        bars[k] = _given_back(grads[k], lent.parts.get(k))
    return lent


def _from(node: OpNode, bars: list[Any], k: int) -> Any:
    """What other results' cotangents give to one from which these were computed; None: nothing."""
    outer = [j for j in node.op.leading_to(k) if bars[j] is not None and bars[j] is not ZERO]
    if not outer:
        return None

    def rule(op: Any, primals: Any, results: Any, bars: Any, wanted: Any) -> list[Any]:
        return [op.inner_cotangent(primals, bars, k)]

    taken = node.taken
    found = node.run([g if j in outer else None for j, g in enumerate(bars)], (), rule)[0]
    node.taken = taken
    return found


def give_back(grads: list[Any], lent: Lent) -> None:
    """Take away again what was lent."""
    for k, parts in lent.parts.items():
        grads[k] = _given_back(grads[k], parts)


def _given_back(grad: Any, parts: tuple[Any, Any, Any] | None) -> Any:
    if parts is None:
        return grad
    own, inside, total = parts
    return own if grad is total else sub(grad, inside)
