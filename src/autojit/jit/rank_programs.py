"""Ranks of a group compare what they have recorded before they run it: with other collectives they would wait for ever.

Compared are the collectives of a group, with the types of their operands, in order; what else a rank computes is its
own affair (its rank may be a constant of its program). The 128-bit hash of that text is gathered over the group. Where
the hashes differ the texts are, and every rank raises the same error, which names the first collective that differs.

A program that the group has agreed on is not compared again: a rank may capture once more, for a batch of another size,
without the others. So no rank waits here unless its collectives are new.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autojit.core.communicator import Communicator, is_uneven, joined
from autojit.core.errors import UsageError
from autojit.ir.calls_out import graphs_of
from autojit.ir.graph import Node
from autojit.jit.trace import Trace

DIGEST_BYTES = 16


class _Agreed:
    """What a group has agreed on, and the group of the same ranks that it compares in: their steps' calls go on."""

    def __init__(self, group: Communicator) -> None:
        self.channel = group.split(0, group.rank, f"{group.name}/programs")
        self.digests: set[bytes] = set()


_agreed: weakref.WeakKeyDictionary[Any, _Agreed] = weakref.WeakKeyDictionary()


def require_same_program(trace: Trace) -> None:
    """Compare what a capture has recorded with the other ranks of each group that it communicates in.

    Raises:
        UsageError: theirs is another, on all of them; it names the first collective that differs.
    """
    calling = [node for node in trace.builder.nodes if node.op.calls_out]
    if not calling:
        return
    try:
        for name in dict.fromkeys(_groups(calling)):
            group = joined(name)
            if group is not None and group.size > 1 and not is_uneven(name):
                _compare(group, [f"{text}  at {place}" for text, place in _lines(calling, name)])
    except BaseException:
        trace.finish()
        raise


def _groups(nodes: Sequence[Node]) -> Iterator[str]:
    """The group of every collective."""
    for node in nodes:
        op: Any = node.op
        if op.of_ranks and op.calls_out:
            yield op.group
        elif op.calls_out:
            for graph in graphs_of(op):
                yield from _groups(graph.nodes)


def _lines(nodes: Sequence[Node], group: str) -> Iterator[tuple[str, object]]:
    """A collective of the group per line, and where it is; branches and loops say where they begin and end."""
    for node in nodes:
        op: Any = node.op
        if not op.calls_out:
            continue
        if op.of_ranks:
            if op.group == group:
                yield f"{op} of {', '.join(str(v.type) for v in node.inputs)}", node.source
        elif group in _groups([node]):
            yield f"{op.name} with", node.source
            for graph in graphs_of(op):
                yield from _lines(graph.nodes, group)
                yield f"end of {op.name}", node.source


def _compare(group: Communicator, lines: Sequence[str]) -> None:
    known = _agreed.get(group)
    if known is None:
        known = _agreed[group] = _Agreed(group)
    text = "\n".join(line.partition("  at ")[0] for line in lines)
    digest = hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()
    if digest in known.digests:
        return
    channel = known.channel
    assert channel is not None, "every rank is in the group of all"
    found = np.empty((channel.size, DIGEST_BYTES), np.uint8)
    channel.all_gather(found, np.frombuffer(digest, np.uint8).copy())
    if (found == found[0]).all():
        known.digests.add(digest)
        return
    raise _difference(group.name, _gathered(channel, lines))


def _gathered(channel: Communicator, lines: Sequence[str]) -> list[list[str]]:
    """The lines of all ranks."""
    own = np.frombuffer("\n".join(lines).encode() or b" ", np.uint8)
    lengths = np.empty((channel.size, 1), np.int64)
    channel.all_gather(lengths, np.array([own.size], np.int64))
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: own.size] = own
    found = np.empty((channel.size, padded.size), np.uint8)
    channel.all_gather(found, padded)
    texts = [bytes(row[: int(n)]).decode() for row, (n,) in zip(found, lengths, strict=True)]
    return [text.split("\n") for text in texts]


def _difference(group: str, programs: Sequence[Sequence[str]]) -> UsageError:
    """The error that all ranks raise."""

    def at(program: Sequence[str], place: int) -> str:
        return program[place] if place < len(program) else "nothing more"

    place = 0
    while len({at(program, place).partition("  at ")[0] for program in programs}) == 1:
        place += 1
    facts = {f"rank {rank}": at(program, place) for rank, program in enumerate(programs)}
    return UsageError(
        f"the ranks of the group {group!r} have recorded different programs: collective {place} differs",
        facts,
        "let every rank call the same collectives in the same order, on operands of the same types",
    )
