"""What a lane can take of a program: neighbours in one access, elements of a row, registers for what it carries on."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.phases import phases_of
from autojit.codegen.piecewise import below
from autojit.codegen.walk import Walk
from autojit.ir.index import Index
from autojit.schedule.expressions import Expr, Load

MOST_ELEMENTS = 16  # of a row in a lane's registers: softmax and layer norm with gradients then take 167 of them
FEWEST_ELEMENTS = 4  # of them in a program of any length: a vector of float32
MOST_LINES = 1024  # expressions that are written for one lane: LLVM takes 50 ms for them
VECTOR_BYTES = 16  # the widest access of a thread
MOST_NEIGHBOURS = 8  # of bytes and halves: more lines of text for each point
MOST_BYTES_AT_ONCE = 16  # neighbours where nothing larger than a byte is accessed
REGISTERS = 65536  # of a processor, on every GPU so far, for the threads of its blocks
MOST_REGISTERS = 255  # of a thread


def registers(threads: int) -> int:
    """Of a thread, in a block of this many."""
    return min(MOST_REGISTERS, REGISTERS // threads)


def carried_words(walk: Walk) -> int:
    """The most registers that an element of a row takes at once for what is read, carried on and accumulated."""
    first: dict[Expr, int] = {}
    last: dict[Expr, int] = {}
    phases = phases_of(walk)
    for phase in phases:
        for root in phase.roots():
            last[root] = phase.number
        for expr in below(phase.roots(), lambda e: e in first or e not in walk.varying):
            first[expr] = phase.number
            last.update(dict.fromkeys(expr.args, phase.number))
            last.setdefault(expr, phase.number)
    columns = sum(_words(a.expr) for a in walk.program.accumulators if a.kind == "col")
    at_once = [
        sum(
            _words(e)
            for e, begin in first.items()
            if begin <= k and (last[e] > k or (begin == k and isinstance(e, Load)))
        )
        for k in range(len(phases))
    ]
    return max(1, columns + max(at_once, default=0))


def _words(expr: Expr) -> int:
    return -(-expr.dtype.size_bytes // 4)


def most_elements(walk: Walk) -> int:
    """How many elements a lane holds at once: fewer of long programs, whose text is written for each."""
    most = MOST_ELEMENTS
    while most > FEWEST_ELEMENTS and most * len(walk.varying) > MOST_LINES:
        most //= 2
    return most


def vector_width(walk: Walk) -> int:
    """How many neighbours a lane takes at once: as many as half of what moves is accessed at once with.

    The rest is read element by element at the same points: a lane more for each would not read less. Neighbours are
    those of the last loop, or, where its extent has no such vectors and there are no rows, those of the line of all
    points: there an access is a vector if it walks along that line.
    """
    if not walk.inner or not walk.inner_count:
        return 1
    moving = [(index, size) for index, size in _accesses(walk) if walk.moves(index)]
    most = MOST_BYTES_AT_ONCE if max((size for _, size in moving), default=0) == 1 else MOST_NEIGHBOURS
    width = min(most, VECTOR_BYTES // max((size for _, size in moving), default=VECTOR_BYTES))
    while width > 1 and not _pays(walk, moving, width):
        width //= 2
    return width


def _accesses(walk: Walk) -> set[tuple[Index, int]]:
    """Where memory is accessed, each place once, with the size of an element."""
    program = walk.program
    reads = {(e.positions[0], e.dtype.size_bytes) for e in program.exprs if isinstance(e, Load)}
    return reads | {(s.index, s.value.type.dtype.size_bytes) for s in program.stores}


def _pays(walk: Walk, moving: Sequence[tuple[Index, int]], width: int) -> bool:
    if is_line(walk, width) and (walk.rows or walk.inner_count < width):
        return False
    last = walk.inner[-1]
    sizes = [size for index, size in moving if last in set(index.walk()) or is_line(walk, width)]
    wide = [size for index, size in moving if is_vector(walk, index, width)]
    return bool(wide) and 2 * sum(wide) >= sum(sizes)


def is_line(walk: Walk, width: int) -> bool:
    """Whether vectors of neighbours go beyond the end of the last loop, along the line of all points."""
    return walk.inner[-1].extent % width != 0


def along_line(walk: Walk, index: Index) -> bool:
    """Whether a position moves by one from each point of a row to the next, whatever its loops are."""
    return frozenset(index.terms) == frozenset(walk.position.terms)


def is_vector(walk: Walk, index: Index, width: int) -> bool:
    """Whether neighbours of a vector are neighbours in memory and begin at a multiple of it."""
    last = walk.inner[-1]
    if is_line(walk, width):
        return along_line(walk, index) and index.offset % width == 0
    if dict(index.terms).get(last) != 1 or last in index.divided_variables():
        return False
    others = [coefficient for term, coefficient in index.terms if term != last]
    return all(n % width == 0 for n in (index.offset, *others))


def is_turned(walk: Walk) -> bool:
    """Whether reads are neighbours along the rows, not inside of them, and no columns are kept."""
    if not (walk.rows and walk.inner and walk.inner_count) or any(a.kind == "col" for a in walk.program.accumulators):
        return False
    row, last = walk.rows[-1], walk.inner[-1]
    reads = [dict(e.positions[0].terms) for e in walk.program.exprs if isinstance(e, Load)]
    return any(terms.get(row) == 1 and last in terms for terms in reads) and all(
        terms.get(last) != 1 for terms in reads
    )
