"""What a lane can take of a program: neighbours in one access, elements of a row, registers for what it carries on."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.phases import phases_of
from autojit.codegen.piecewise import below
from autojit.codegen.walk import Walk
from autojit.core.sizes import is_symbolic, surely_less
from autojit.ir.index import Index, LoopVariable
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
    """How many neighbours a lane takes at once: as many as a third of what moves is accessed at once with.

    The rest is read element by element at the same points: a lane more for each would not read less.
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


def access_sizes(walk: Walk) -> list[int]:
    """Bytes of the elements that are accessed at other places from point to point."""
    return [size for index, size in _accesses(walk) if walk.moves(index)]


def _pays(walk: Walk, moving: Sequence[tuple[Index, int]], width: int) -> bool:
    rest = walk.inner_count % width
    if is_symbolic(rest) or (rest and (walk.rows or walk.inner_count < width)):
        return False
    along = vector_loops(walk, width)
    sizes = [size for index, size in moving if not set(along).isdisjoint(index.walk())]
    wide = [size for index, size in moving if is_vector(walk, index, width)]
    return bool(wide) and 3 * sum(wide) >= sum(sizes)


def vector_loops(walk: Walk, width: int) -> tuple[LoopVariable, ...]:
    """The innermost loops that have whole vectors of this width together; all loops where no others have.

    Then a vector is one of the line of all points, and what is behind the last one is in none.
    """
    count = 1
    for place in range(len(walk.inner) - 1, -1, -1):
        count *= walk.inner[place].extent
        if count % width == 0:
            return tuple(walk.inner[place:])
    return tuple(walk.inner)


def is_vector(walk: Walk, index: Index, width: int) -> bool:
    """Whether neighbours of a vector are neighbours in memory and begin at a multiple of it."""
    along, terms, stride = vector_loops(walk, width), dict(index.terms), 1
    for variable in reversed(along):
        is_walked = not surely_less(variable.extent, 2)  # what the step counts may be 0 or 1
        if is_walked and (terms.pop(variable, 0) != stride or variable in index.divided_variables()):
            return False
        stride *= variable.extent
    return all(n % width == 0 for n in (index.offset, *terms.values()))


def is_turned(walk: Walk) -> bool:
    """Whether reads are neighbours along the rows, not inside of them, and no columns are kept."""
    if not (walk.rows and walk.inner and walk.inner_count) or any(a.kind == "col" for a in walk.program.accumulators):
        return False
    row, last = walk.rows[-1], walk.inner[-1]
    reads = [dict(e.positions[0].terms) for e in walk.program.exprs if isinstance(e, Load)]
    return any(terms.get(row) == 1 and last in terms for terms in reads) and all(
        terms.get(last) != 1 for terms in reads
    )
