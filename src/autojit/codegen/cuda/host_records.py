"""The records of work on a device: what `runtime.gpu.plan` writes and ``aj_device`` reads."""

from __future__ import annotations

from autojit.codegen.records import HalfWord, Pointer, Record, Word, field

LAUNCH, FIRST, SECOND, GRAPH = range(4)
"""What a run does (`Run.mode`): its launches one by one, always, or because it is the first time; has a graph made,
which is launched from then on; launches the graph."""

ALONE, TOGETHER, AS_GRAPH = range(3)
"""A kernel; one all of whose blocks run at once; a graph, whose address is in the place of the function's."""

MAKE_GRAPH, MISALIGNED, RESIZED, FAILED = range(4)
"""What Python is asked for: a graph; kernels for addresses that are aligned to elements only; the graph for other
sizes than those of the run before; to raise an error."""


class DriverCalls(Record[int]):
    """The driver's functions."""

    set_context: Pointer
    launch: Pointer
    launch_together: Pointer  # all blocks of it run at once
    launch_graph: Pointer
    set_parameters: Pointer
    copy_in: Pointer
    copy_out: Pointer
    copy_within: Pointer
    fill: Pointer
    synchronize: Pointer
    record: Pointer
    wait: Pointer
    query: Pointer  # whether a queue is empty
    pointer_attribute: Pointer  # 0 where copies from the host are always waited for


class Channel(Record[int]):
    """What the runs and transfers of one executable on one device have in common."""

    calls: Pointer
    context: Pointer  # of the driver, which is made the thread's; 0 where there is none
    home_stream: Pointer  # of threads that have chosen no other
    stream_key: Word  # what the system is asked with for the table of a thread's streams
    stream_place: Word  # the device's word in it; the first is the number of words
    error: Pointer  # the step's error words
    ask: Pointer  # a Python function, called with the record that asks, what for, and a number
    is_answered: Word  # 1 when that function has come to its end
    interrupted: Word  # the error word of a step that a signal has ended
    answers: Pointer  # a word that counts the driver's functions that have come to their end
    counts: Word  # 1 if they do count, because a signal may leave one out; 0 of NVIDIA's, which are native
    waits: Word  # 1: after every run


class Run(Record[int]):
    """What a device does from one wait of the host to the next."""

    channel: Pointer
    mode: Word
    last_stream: Word  # that of the run before: another one waits for it
    n_sizes: Word
    sizes: Pointer  # words of which a graph holds the values: open sizes, and addresses that follow from them
    known_sizes: Pointer  # what they were in the run before
    mark: Pointer  # the event by which it waits; 0: the run has no memory of its own, and who calls it orders the rest
    n_numbers: Word
    numbers: Pointer  # as many `HostNumber`
    n_addresses: Word
    addresses: Pointer  # as many `MovingAddress`
    n_launches: Word
    launches: Pointer  # as many `LaunchWords`
    n_prologues: Word
    prologues: Pointer  # as many `PrologueNode`
    graph: Pointer
    device_errors: Pointer  # two words of the device, 0 where no kernel reports
    told: Pointer  # what the host is told of them (`codegen.cuda.report`)
    runs: Word = field(default=0)
    graph_launches: Word = field(default=0)


class MovingAddress(Record[int]):
    """A word with an address that is another in every call, and what kernels expect of it."""

    word: Pointer
    mask: Word  # the bits that must be 0


class HostNumber(Record[int]):
    """A number of the host that kernels read: its bytes are copied to the moving block at every call."""

    source: Pointer
    target: Pointer
    bytes: Word


class LaunchWords(Record[int]):
    """One launch."""

    function: Pointer
    blocks_x: HalfWord
    blocks_y: HalfWord
    blocks_z: HalfWord
    threads: HalfWord
    parameters: Pointer  # the addresses of the arguments
    kind: HalfWord  # `ALONE`, `TOGETHER` or `AS_GRAPH`
    shared_bytes: HalfWord = field(default=0)  # that the launch asks for


class PrologueNode(Record[int]):
    """A node of the graph whose parameters are set anew at every call."""

    node: Pointer
    how: Pointer  # `CUDA_KERNEL_NODE_PARAMS`


class TransferWords(Record[int]):
    """A copy between host and device."""

    channel: Pointer
    target: Pointer
    source: Pointer
    bytes: Word
