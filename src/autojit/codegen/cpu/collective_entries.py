"""Collectives in a step: entries that call the group's C functions, where it has them."""

from __future__ import annotations

from math import prod
from typing import Any

from autojit.codegen.cpu.plan.records import CollectiveContext, GroupWords
from autojit.codegen.lowered import Entry, ErrorWords, GroupAddress, Immediate, Reporter, Shared, Words
from autojit.core.communicator import COLLECTIVES, Combination, joined
from autojit.core.device import CPU
from autojit.core.sizes import typical
from autojit.ops.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Beginning,
    Broadcast,
    Collective,
    Owner,
    ReduceScatter,
    SendRecv,
    Wait,
)
from autojit.ops.rank_arithmetic import combined_as
from autojit.ops.ranks import Rank
from autojit.schedule.kernels import StructuredKernel

RELEASING_NS = 60_000.0
"""At least what a collective is estimated at: steps that may wait for other processes let other threads run."""
_MOVES = {
    AllGather: "aj_all_gather",
    AllToAll: "aj_all_to_all",
    Broadcast: "aj_broadcast",
    SendRecv: "aj_send_recv",
    Wait: "aj_wait",
}
_MANNERS = {"at once": "", "begun": "_begun", "begun and ended": "_ended"}


def collective_entry(kernel: StructuredKernel, shared: Shared) -> Entry | None:
    """What runs for a collective, or for the number of the rank; None: it is called back, as the group is not native.

    ``shared`` gets who is behind its reports.
    """
    node = kernel.node
    op: Any = node.op
    group = joined(op.group)
    native = None if group is None else group.native()
    if native is None or any(v.type.device != CPU for v in (*node.inputs, *node.outputs)):
        return None
    named: dict[str, Any] = dict.fromkeys(
        ("source", "amount", "width", "type", "combine", "number", "smallest", "peers", "error", "code"), Immediate(0)
    )
    named |= {"group": GroupAddress(op.group), "to": node.outputs[0], "size": Immediate(op.size)}
    if isinstance(op, Rank):
        context = CollectiveContext(**_in_order(named))
        return Entry("@aj_rank", "", context, 1, 10.0, "rank")
    found = _reduction(op, kernel) if isinstance(op, AllReduce | ReduceScatter | Owner) else _move(op, kernel)
    if found is None or not _knows(native, found):
        return None
    body, words = found
    shared.reporters.append(Reporter((node,), (), (op,)))
    called = "all_reduce" if isinstance(op, Owner) else op.name
    named |= {"source": kernel.operands[0], "number": Immediate(1 + COLLECTIVES.index(called)), **words}
    named |= {"error": ErrorWords(), "code": Immediate(len(shared.reporters) - 1)}
    estimate = RELEASING_NS + typical(node.inputs[0].type.size_bytes) * 0.5
    return Entry(f"@{body}", "", CollectiveContext(**_in_order(named)), 1, estimate, op.name)


def _in_order(named: dict[str, Any]) -> dict[str, Any]:
    return {name: named[name] for name in CollectiveContext.fields}


def _reduction(op: AllReduce | ReduceScatter | Owner, kernel: StructuredKernel) -> tuple[str, dict[str, Any]] | None:
    """The body and the words for elements that are combined."""
    x = kernel.node.inputs[0].type
    combine: Combination = getattr(op, "combine", "sum")
    is_extreme = combine in ("max", "min") and x.dtype.kind == "float"
    name = "uint8" if x.dtype.kind == "bool" else x.dtype.numpy.name
    if name not in GroupWords.fields or (isinstance(op, Owner) and not is_extreme):
        return None
    body = "aj_owner" if isinstance(op, Owner) else "aj_reduce_scatter"
    if isinstance(op, AllReduce):
        if is_extreme and op.manner != "at once":
            return None  # its keys cannot be turned back where it is begun
        body = "aj_all_reduce_extreme" if is_extreme else f"aj_all_reduce{_MANNERS[op.manner]}"
    if isinstance(op, ReduceScatter):
        body += _MANNERS[op.manner]
    shape = x.shape[1:] if isinstance(op, ReduceScatter) else x.shape
    how = combined_as(x.dtype.numpy, combine)
    return (f"{body}_{x.dtype.short}" if is_extreme else body), {
        "amount": Immediate(prod(shape)),
        "width": Immediate(x.dtype.size_bytes),
        "type": Immediate(GroupWords.fields[name].offset_bytes),
        "combine": Immediate(GroupWords.fields[how].offset_bytes),
        "smallest": Immediate(int(combine == "min")),
    }


def _move(op: Collective, kernel: StructuredKernel) -> tuple[str, dict[str, Any]]:
    """The body and the words for bytes that are moved."""
    x = kernel.node.inputs[0].type
    shape = x.shape[1:] if isinstance(op, AllToAll) else x.shape
    words: dict[str, Any] = {"amount": Immediate(prod(shape) * x.dtype.size_bytes), "width": Immediate(1)}
    if isinstance(op, Broadcast):
        words["peers"] = Words((op.root,))
    if isinstance(op, SendRecv):
        sides = [op.sides(rank) for rank in range(op.size)]
        peers = [to for to, _ in sides] + [source for _, source in sides]
        words["peers"] = Words(tuple([-1 if peer is None else peer for peer in peers]))
    return _MOVES[type(op)] + (_MANNERS[op.manner] if isinstance(op, Beginning) else ""), words


def _knows(native: Any, found: tuple[str, dict[str, Any]]) -> bool:
    """Whether the group has handles of what is combined."""
    wanted = {words.word for name in ("type", "combine") if (words := found[1].get(name)) is not None}
    names = {name for name, field in GroupWords.fields.items() if field.offset_bytes in wanted}
    return all(name in native.datatypes or name in native.operations for name in names)
