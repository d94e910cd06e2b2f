"""What a lane can take of a program: neighbours in one access, elements of a row, registers for what it carries on."""

from __future__ import annotations

from autojit.codegen.phases import phases_of
from autojit.codegen.piecewise import below, varies
from autojit.codegen.walk import Walk
from autojit.core.sizes import is_symbolic, surely_less
from autojit.ir.index import Index, LoopVariable
from autojit.schedule.expressions import Expr, Guarded, Load

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
    sizes = access_sizes(walk)
    most = MOST_BYTES_AT_ONCE if max(sizes, default=0) == 1 else MOST_NEIGHBOURS
    width = min(most, VECTOR_BYTES // max(sizes, default=VECTOR_BYTES))
    while width > 1 and not _pays(walk, width):
        width //= 2
    return width


def _accesses(walk: Walk) -> set[tuple[Index, int]]:
    """Where memory is accessed, each place once, with the size of an element."""
    program = walk.program
    reads = {(e.positions[0], e.dtype.size_bytes) for e in program.exprs if isinstance(e, Load)}
    return reads | {(s.index, s.value.type.dtype.size_bytes) for s in program.stores}


def accesses(walk: Walk) -> int:
    """How many places that move from point to point are read or written at each."""
    return len(access_sizes(walk))


def access_sizes(walk: Walk) -> list[int]:
    """Bytes of the elements that are accessed at other places from point to point."""
    return [size for index, size in _accesses(walk) if walk.moves(index)]


def _pays(walk: Walk, width: int) -> bool:
    rest = walk.inner_count % width
    is_row = bool(walk.rows or walk.program.reductions)  # lanes hold it in whole vectors; of a line the rest is apart
    if is_symbolic(rest) or (rest and (is_row or walk.inner_count < width)):
        return False
    along = vector_loops(walk, width)
    pieces = _read_in_pieces(walk, width)
    moving = [(index, size) for index, size in _accesses(walk) if not set(along).isdisjoint(index.walk())]
    wide = [size for index, size in moving if is_vector(walk, index, width) or index in pieces]
    return bool(wide) and 3 * sum(wide) >= sum(size for _, size in moving)


def _read_in_pieces(walk: Walk, width: int) -> set[Index]:
    """Where runs of neighbours are read, wherever they begin, except for those that a guard chooses from."""
    chains = [e for e in walk.program.exprs if isinstance(e, Guarded) and e.args[1] in walk.varying]
    chosen = {arm for guard in chains for arm in guard.args}
    return {
        expr.positions[0]
        for expr in walk.program.exprs
        if isinstance(expr, Load) and expr not in chosen and has_pieces(walk, expr, width)
    }


def has_pieces(walk: Walk, load: Load, width: int) -> bool:
    """Whether neighbours are next to each other in memory, and their buffer is whole vectors.

    Where something is looked up, or divided by a size that may be 0, nothing is known of a position that a guard hides.
    """
    program, index = walk.program, load.positions[0]
    is_result = load.buffer >= len(program.loads) or load.buffer in program.in_place.values()
    if is_result or load not in walk.varying or varies(index, ()):
        return False
    size = program.loads[load.buffer].type.size
    return not is_symbolic(size) and size > 0 and size % width == 0 and is_run(walk, index, width)


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
    return is_run(walk, index, width) and phase_of(walk, index, width) == 0


def is_run(walk: Walk, index: Index, width: int) -> bool:
    """Whether neighbours of a vector are neighbours in memory, wherever they begin."""
    terms, stride = dict(index.terms), 1
    for variable in reversed(vector_loops(walk, width)):
        is_walked = not surely_less(variable.extent, 2)  # what the step counts may be 0 or 1
        if is_walked and (terms.get(variable, 0) != stride or variable in index.divided_variables()):
            return False
        stride *= variable.extent
    return True


def phase_of(walk: Walk, index: Index, width: int) -> int | None:
    """How many elements behind a multiple of the width vectors of a run begin; None: that differs or is not known."""
    along = vector_loops(walk, width)
    others = [n for term, n in index.terms if term not in along]
    phase = index.offset % width
    return None if is_symbolic(phase) or any(n % width != 0 for n in others) else phase


def is_turned(walk: Walk) -> bool:
    """Whether reads are neighbours along the rows, not inside of them, and no columns are kept."""
    if not (walk.rows and walk.inner and walk.inner_count) or any(a.kind == "col" for a in walk.program.accumulators):
        return False
    row, last = walk.rows[-1], walk.inner[-1]
    reads = [dict(e.positions[0].terms) for e in walk.program.exprs if isinstance(e, Load)]
    return any(terms.get(row) == 1 and last in terms for terms in reads) and all(
        terms.get(last) != 1 for terms in reads
    )
