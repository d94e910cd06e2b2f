"""Which loops of a linked function LLVM should unroll: a loop inside keeps the loop around it from being vectorised.

Loops qualify that are left after a constant number of rounds (or by failing) and stay short enough. The number is found
by following the counter; loops that data can end early stay, because all lanes of a vector would go all the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from autojit.codegen.numba_text.instruction_text import binary, read_instruction, split, take_flags, take_type
from autojit.codegen.numba_text.module_text import Function

MOST_INSTRUCTIONS = 6000  # of an unrolled loop; 1 s of LLVM's time
CALL_INSTRUCTIONS = 40  # of a mathematical function
MOST_ROUNDS = 1024

_LABEL = re.compile(r"label %([-\w$.]+)")
_HOLDS = {
    "eq": int.__eq__, "ne": int.__ne__, "slt": int.__lt__, "ult": int.__lt__, "sle": int.__le__, "ule": int.__le__,
    "sgt": int.__gt__, "ugt": int.__gt__, "sge": int.__ge__, "uge": int.__ge__,
}  # fmt: skip


def unrolled_latches(function: Function) -> list[str]:
    """Labels of the blocks that end a round of a loop to be unrolled."""
    blocks = dict(function.blocks)
    following = {label: _LABEL.findall(lines[-1]) if lines else [] for label, lines in blocks.items()}
    above = _dominators([label for label, _ in function.blocks], following)
    loops = [
        (latch, head, _members(latch, head, following))
        for latch, heads in following.items()
        for head in heads
        if head in above[latch]
    ]
    loops.sort(key=lambda loop: len(loop[2]))
    sizes: dict[str, int] = {}  # of unrolled loops, by head
    chosen: list[str] = []
    for latch, head, members in loops:
        rounds = _rounds(function, latch, head, members)
        if rounds is None or not _is_left_by_failing_only(latch, members, following, blocks):
            continue
        inner = sum(size for other, size in sizes.items() if other in members)
        size = rounds * (inner + sum(_size(blocks[label]) for label in members))
        if size <= MOST_INSTRUCTIONS:
            chosen.append(latch)
            sizes = {other: kept for other, kept in sizes.items() if other not in members} | {head: size}
    return chosen


def _size(lines: Sequence[str]) -> int:
    return sum(CALL_INSTRUCTIONS if "call " in line else 1 for line in lines)


def _dominators(labels: list[str], following: dict[str, list[str]]) -> dict[str, set[str]]:
    """For every block those that every way to it passes, itself among them."""
    before: dict[str, list[str]] = {label: [] for label in labels}
    for label, targets in following.items():
        for target in targets:
            before[target].append(label)
    above = {label: set(labels) for label in labels}
    above[labels[0]] = {labels[0]}
    is_changed = True
    while is_changed:
        is_changed = False
        for label in labels[1:]:
            sets = [above[other] for other in before[label]]
            found = {label} | (set.intersection(*sets) if sets else set())
            is_changed = is_changed or found != above[label]
            above[label] = found
    return above


def _members(latch: str, head: str, following: dict[str, list[str]]) -> set[str]:
    """The blocks of a loop: those from which its latch is reached without passing its head."""
    members, waiting = {head}, [latch]
    while waiting:
        label = waiting.pop()
        if label not in members:
            members.add(label)
            waiting += [other for other, targets in following.items() if label in targets]
    return members


def _is_left_by_failing_only(
    latch: str, members: set[str], following: dict[str, list[str]], blocks: dict[str, list[str]]
) -> bool:
    exits = {target for label in members if label != latch for target in following[label] if target not in members}
    return all(any("inttoptr (i64" in line for line in blocks[target]) for target in exits)


def _rounds(function: Function, latch: str, head: str, members: set[str]) -> int | None:
    """How often the loop runs, when its counter starts, steps and ends at constants."""
    defined = {line.split(" = ", 1)[0]: line for line in function.lines() if " = " in line}
    found = re.fullmatch(r"br i1 (%\S+), label %(\S+), label %(\S+)", dict(function.blocks)[latch][-1])
    compared = defined.get(found.group(1), "") if found else ""
    if found is None or " icmp " not in compared:
        return None
    _, rest = take_flags(read_instruction(compared).rest)
    predicate, _, operands = rest.partition(" ")
    _, both = take_type(operands)
    counter, end = split(both)
    if not re.fullmatch(r"-?\d+", end):
        return None
    counted = _counter(counter, defined, members)
    if counted is None:
        return None
    first, stride = counted
    goes_on = found.group(2) == head
    for rounds in range(1, MOST_ROUNDS + 1):
        if _HOLDS[predicate](first + stride * (rounds - 1), int(end)) != goes_on:
            return rounds
    return None


def _counter(name: str, defined: dict[str, str], members: set[str]) -> tuple[int, int] | None:
    """(value in the first round, stride) of a value that is a counter of the loop, or that plus a constant."""
    base, offset = _base(name, defined)
    line = defined.get(base, "")
    if " = phi " not in line:
        return None
    entries = re.findall(r"\[ (\S+), %([-\w$.]+) \]", line)
    starts = [value for value, label in entries if label not in members]
    nexts = [value for value, label in entries if label in members]
    if len(starts) != 1 or len(nexts) != 1 or not re.fullmatch(r"-?\d+", starts[0]):
        return None
    again, stride = _base(nexts[0], defined)
    return (int(starts[0]) + offset, stride) if again == base else None


def _base(name: str, defined: dict[str, str]) -> tuple[str, int]:
    """What constants were added to, and their sum."""
    total = 0
    while " = add " in defined.get(name, ""):
        _, _, base, added = binary(read_instruction(defined[name]).rest)
        if not re.fullmatch(r"-?\d+", added):
            break
        name, total = base, total + int(added)
    return name, total
