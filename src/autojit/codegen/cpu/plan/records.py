"""The records of a plan: what `runtime.plan` writes and the plan runner reads.

A *plan* is data, not code: a compiled step is a list of entries (body, context, chunks, parallel) that ``aj_step``
walks, so a new step costs no compilation beyond its own new kernels. ``table[-1]`` holds the plan's address. A body is
``void(ptr context, i64 chunk, i64 worker)``; a kernel's context is its array of buffer pointers, the contexts of the
runner's own bodies are records. First the plan's own records, then the contexts that lowering fills with arguments,
then the records of a *size program*.
"""

from __future__ import annotations

from autojit.codegen.lowered import Argument
from autojit.codegen.records import Field, Pointer, Record, Word

INTERRUPTED = -1  # the error word of a step that a signal has ended
EVERY, EVERY_SIXTEENTH = 1, 2  # how often entries look at the clock


class Plan(Record[int]):
    """One step, or the body of a branch or loop."""

    n_patches: Word
    patches: Pointer
    n_entries: Word
    entries: Pointer
    workers: Word  # that scratch was laid out for
    error: Pointer  # a word that a failing entry makes not 0: those after it, and so their writes, are left out
    sizes: Pointer  # the size program, 0 where all sizes are fixed
    n_stoppable: Word  # entries that a signal may stop: those before the first that writes what outlives the call
    clock: Word  # `EVERY` or `EVERY_SIXTEENTH` of them looks at the clock first


class Patch(Record[int]):
    """Where to write an entry of the pointer table plus a number of bytes."""

    address: Pointer
    source: Word
    bytes: Word


class PlanEntry(Record[int]):
    """One body run over chunks."""

    body: Pointer
    context: Pointer
    chunks: Word
    is_parallel: Word


class Polled(Record[int]):
    """Context of a body that a signal may stop between chunks."""

    body: Pointer
    context: Pointer
    error: Pointer


class Batch(Record[int]):
    """Independent kernels run as one parallel loop; as many `BatchPart` follow."""

    n_parts: Word


class BatchPart(Record[int]):
    """A kernel of a batch."""

    first: Word  # of its chunks in the batch
    body: Pointer
    context: Pointer


class Band(Record[int]):
    """Kernels run on one slice after the other; as many `BandKernel` follow."""

    n_kernels: Word


class BandKernel(Record[int]):
    """A kernel of a band."""

    body: Pointer
    n_rows: Word
    rows: Pointer
    is_told: Word  # 1: its chunk is the slice's number; 0: its chunk is 0


class BandRow(Record[int]):
    """An argument of a band's kernel: an address that moves with the slice and the worker."""

    address: Word
    per_slice: Word  # bytes
    per_worker: Word  # bytes


class ProductWords(Record[int]):
    """A batched matrix product, cut into units of a block of rows times a block of columns; strides in elements."""

    m: Word
    n: Word
    k: Word
    rsa: Word  # of rows and columns
    csa: Word
    rsb: Word
    csb: Word
    rsc: Word
    csc: Word
    accumulate: Word
    row_block: Word
    row_blocks: Word
    units_per_chunk: Word
    units: Word
    inner_batch: Word  # extent of the inner of two batch axes
    a_outer: Word  # strides of the batch axes
    a_inner: Word
    b_outer: Word
    b_inner: Word
    c_outer: Word
    c_inner: Word
    scratch_bytes: Word  # per worker
    col_block: Word
    col_blocks: Word


class ContractionWords(Record[int]):
    """In a band: the product of a slice of both operands, ``k_block`` of the ``k`` steps or what is left of them."""

    m: Word
    n: Word
    k: Word
    rsa: Word
    csa: Word
    rsb: Word
    csb: Word
    rsc: Word
    csc: Word
    k_block: Word
    scratch_bytes: Word


class SlotSum(Record[int]):
    """Partial results of ``n`` elements, ``n_slots`` of them, ``stride`` bytes apart."""

    n: Word
    n_slots: Word
    stride: Word


# -- contexts, which lowering fills with symbolic arguments


class WordArgument(Field[Argument]):
    """An argument that becomes a number."""

    kind = "i64"


class PointerArgument(Field[Argument]):
    """An argument that becomes an address."""

    kind = "ptr"


class CopyContext(Record[Argument]):
    """Bytes copied block by block; the target may be the source."""

    to: PointerArgument
    source: PointerArgument  # 0 for zeros
    bytes: WordArgument
    block: WordArgument  # bytes per chunk


class ProductContext(Record[Argument]):
    """Operands and result of a matrix product."""

    a: PointerArgument
    b: PointerArgument
    c: PointerArgument
    words: PointerArgument  # `ProductWords` or `ContractionWords`
    scratch: PointerArgument


class SumContext(Record[Argument]):
    """Partial results to be added up."""

    to: PointerArgument
    slots: PointerArgument
    words: PointerArgument  # `SlotSum`


class BranchContext(Record[Argument]):
    """A bool, and per branch the pointer table of its plan."""

    predicate: PointerArgument
    on_true: PointerArgument
    on_false: PointerArgument


class LoopContext(Record[Argument]):
    """A loop over a nested plan; as many `LoopRow` and then as many `LastValue` follow."""

    steps: PointerArgument  # the number of steps; a loop without a known number writes it
    is_open: WordArgument  # 1: the loop goes on while the bool at the table's first input is true
    is_back: WordArgument  # 1: tapes are walked backwards
    table: PointerArgument  # of the nested plan
    error: PointerArgument
    tape: PointerArgument  # the loop's own
    n_rows: WordArgument
    n_last: WordArgument


class LoopRow(Record[Argument]):
    """Where an entry of the nested plan's table points in each step.

    To ``first`` in the first step, to ``last`` in the last one of a known number unless it is 0, else to ``even`` or
    ``odd`` by the step's number, plus ``stride`` bytes per step. Or, on a tape, to ``even`` bytes behind the beginning
    of the step's record on the tape at ``first``.
    """

    is_on_tape: WordArgument
    first: WordArgument
    even: WordArgument
    odd: WordArgument
    stride: WordArgument
    last: WordArgument


class LastValue(Record[Argument]):
    """What is copied after a loop from where an entry of the table points."""

    source: WordArgument  # the entry
    target: PointerArgument
    bytes: WordArgument
    mover: PointerArgument  # `MoverWords` where the memory is a device's; 0: the host's


class CollectiveContext(Record[Argument]):
    """What a collective moves or combines, and between whom (see `collectives`)."""

    group: PointerArgument  # `GroupWords`
    to: PointerArgument
    source: PointerArgument
    amount: WordArgument  # per part: elements that are combined, or bytes that are moved
    width: WordArgument  # bytes of each of them
    type: WordArgument  # where in the group's words the handle of the elements' type is
    combine: WordArgument  # likewise, of how they are combined
    number: WordArgument  # of the function, from 1 on: `core.communicator.COLLECTIVES`
    smallest: WordArgument  # 1: the smallest number is looked for, else the largest
    size: WordArgument  # the number of ranks when the step was recorded
    peers: PointerArgument  # whom each rank sends to, then whom each receives from, -1: nobody; the root alone
    error: PointerArgument
    code: WordArgument  # of reports


class CallWords(Record[int]):
    """A function of Python's that an entry calls: ``function(context, 0, 0)``.

    It changes ``answers``, unless a signal came on the way and something was raised in its place.
    """

    function: Pointer
    context: Pointer
    error: Pointer
    answers: Word


class MoverWords(Record[int]):
    """Who copies within the memory of a device: ``body(context, target, source)`` copies a number of bytes it knows."""

    body: Pointer
    context: Pointer


class TapeWords(Record[int]):
    """A tape that grows with the steps of a loop.

    ``make_room(tape, steps, 0)`` makes room for that many steps. It changes ``answers``, unless a signal came on the
    way and something was raised in its place.
    """

    address: Word
    capacity: Word  # in steps
    record_bytes: Word  # per step
    make_room: Pointer
    answers: Word


class GroupWords(Record[int]):
    """A group of processes as this one has joined it: `core.communicator.NativeCollectives`; 0 where it has not."""

    rank: Word
    size: Word
    all_reduce: Pointer
    all_gather: Pointer
    reduce_scatter: Pointer
    all_to_all: Pointer
    broadcast: Pointer
    send_recv: Pointer
    communicator: Word
    in_place: Pointer
    no_process: Word
    no_status: Pointer
    most: Word
    begin_all_reduce: Pointer
    begin_all_gather: Pointer
    begin_reduce_scatter: Pointer
    begin_all_to_all: Pointer
    begin_broadcast: Pointer
    wait: Pointer
    requests: Pointer  # `BEGUN` of `Request`
    counter: Pointer
    inside: Pointer
    sum: Word
    prod: Word
    max: Word
    min: Word
    int8: Word
    int16: Word
    int32: Word
    int64: Word
    uint8: Word
    uint16: Word
    uint32: Word
    uint64: Word
    float32: Word
    float64: Word
    complex64: Word
    complex128: Word


class Request(Record[int]):
    """A collective of a group that a step has begun and not ended."""

    buffer: Pointer  # where its result will be; 0: there is none
    handle: Word  # as the library writes it, which may be shorter


BEGUN = 256  # requests of a group at a time; for one more the first is waited for


# -- sizes


class SizeProgramWords(Record[int]):
    """The sizes of a call in one table, and the instructions that compute what depends on them (see `sizes`)."""

    n_symbols: Word  # -1: do not compare
    table: Pointer  # the symbols' values are its first words
    before: Pointer  # the symbols' values in the call before
    n_instructions: Word
    instructions: Pointer
    n_written: Word
    written: Pointer
    grow: Pointer  # ``i64 grow(i64 bytes, i64 capacity, i64 *table)``: gives memory of at least that many bytes


class Instruction(Record[int]):
    """One operation on places of the table."""

    operation: Word  # index into ``OPERATIONS``
    target: Word
    left: Word
    right: Word


class WrittenWord(Record[int]):
    """Where to write what is at a place of the table."""

    address: Pointer
    place: Word


OPERATIONS = ("add", "multiply", "quotient", "remainder", "minimum", "maximum", "reserve")
