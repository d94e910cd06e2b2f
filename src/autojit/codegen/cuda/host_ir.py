"""Native code of the host that puts work in a device's queue: bodies that entries of a plan run.

``aj_device`` does a run: it gathers what moves from call to call, then launches the graph, or the kernels one by one as
long as there is none; where kernels may report errors it waits, and hands the report to the step. ``aj_copy_in`` and
``aj_copy_out`` copy a value between host and device, ``aj_copy_within`` within a device's memory. The records are in
`host_records`. Python is called only for what happens rarely, and answers by leaving something behind in them.

The driver's functions are called by their addresses, so an emulated driver's are called by the same code.
"""

from __future__ import annotations

from functools import reduce

from autojit.codegen.cuda.host_records import (
    ALONE,
    AS_GRAPH,
    FAILED,
    FIRST,
    GRAPH,
    MAKE_GRAPH,
    MISALIGNED,
    RESIZED,
    SECOND,
    TOGETHER,
    Channel,
    DriverCalls,
    HostNumber,
    LaunchWords,
    MovingAddress,
    PrologueNode,
    Run,
    TransferWords,
)
from autojit.codegen.cuda.report import ERROR_BYTES
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import BODY, Junction, NativeFunction, body
from autojit.codegen.records import Field
from autojit.core.once import once

_ASK = Signature("aj_ask", "ptr channel, ptr record, i64 what, i64 number", "i64")
_USE = Signature("aj_use_device", "ptr channel, ptr record", "i64")
_PRESENT = Signature("aj_present_stream", "ptr channel", "ptr")
_OF_THREAD = Signature("pthread_getspecific", "i32 key", "ptr")
_HOME = -1  # `runtime.gpu.present_streams.HOME`: the thread uses the device's own stream
COPY_WITHIN = Signature("aj_copy_within", "ptr context, i64 target, i64 source")
_MEMORY_TYPE = 2  # CUpointer_attribute
_INVALID_VALUE = 1  # CUresult: the driver does not know the address
_NOT_READY = 600  # CUresult: the queue is not empty
_TURNS_PER_QUERY = 1 << 12  # looks at a word of the host, some 10 us: a query takes one

_CALLS: dict[Field[int], Signature] = {
    DriverCalls.set_context: Signature("", "ptr context", "i32"),
    DriverCalls.launch: Signature(
        "",
        "ptr function, i32 x, i32 y, i32 z, i32 threads, i32 one, i32 one, i32 shared, ptr stream, ptr how, ptr extra",
        "i32",
    ),
    DriverCalls.launch_together: Signature(
        "",
        "ptr function, i32 x, i32 y, i32 z, i32 threads, i32 one, i32 one, i32 shared, ptr stream, ptr how",
        "i32",
    ),
    DriverCalls.launch_graph: Signature("", "ptr graph, ptr stream", "i32"),
    DriverCalls.set_parameters: Signature("", "ptr graph, ptr node, ptr how", "i32"),
    DriverCalls.copy_in: Signature("", "i64 to, ptr source, i64 bytes, ptr stream", "i32"),
    DriverCalls.copy_out: Signature("", "ptr to, i64 source, i64 bytes, ptr stream", "i32"),
    DriverCalls.copy_within: Signature("", "i64 to, i64 source, i64 bytes, ptr stream", "i32"),
    DriverCalls.fill: Signature("", "i64 to, i8 zeroext byte, i64 bytes, ptr stream", "i32"),
    DriverCalls.synchronize: Signature("", "ptr stream", "i32"),
    DriverCalls.record: Signature("", "ptr event, ptr stream", "i32"),
    DriverCalls.wait: Signature("", "ptr stream, ptr event, i32 flags", "i32"),
    DriverCalls.query: Signature("", "ptr stream", "i32"),
    DriverCalls.pointer_attribute: Signature("", "ptr to, i32 which, i64 address", "i32"),
}
"""As NVIDIA's library declares them."""


@once
def host_ir() -> str:
    """The whole module."""
    module = ModuleText()
    NativeFunction.define(module, _ASK, _write_ask, linkage="internal", attributes="noinline")
    NativeFunction.define(module, _USE, _write_use, linkage="internal", attributes="noinline")
    NativeFunction.define(module, _PRESENT, _write_present, linkage="internal", attributes="noinline")
    NativeFunction.define(module, body("aj_device"), _write_device, attributes="")
    NativeFunction.define(module, body("aj_copy_in"), _write_copy_in, attributes="")
    NativeFunction.define(module, body("aj_copy_out"), _write_copy_out, attributes="")
    NativeFunction.define(module, COPY_WITHIN, _write_copy_within, attributes="")
    return module.text()


def _write_ask(f: NativeFunction) -> None:
    """``aj_ask``: let Python do something; the step's error word afterwards.

    A signal is handled before the first line of a function that native code calls, which is then left out: the step is
    ended by it.
    """
    channel, record, what, number = f.parameters
    f.put(channel, Channel.is_answered, 0)
    f.call(BODY, record, what, number, by=f.get(channel, Channel.ask))
    error = f.get(channel, Channel.error)
    with f.when(f.is_zero(f.get(channel, Channel.is_answered))):
        f.store("i64", f.get(channel, Channel.interrupted), error)
    f.ret(f.load("i64", error))


def _write_use(f: NativeFunction) -> None:
    """``aj_use_device``: let the thread's calls be for the device; not 0 if that failed."""
    channel, record = f.parameters
    context = f.get(channel, Channel.context)
    f.return_when(f.is_zero(context, "ptr"), 0)
    calls = _Calls(f, channel, record)
    calls.do(DriverCalls.set_context, context)
    f.ret(0)
    calls.finish(1)


def _write_present(f: NativeFunction) -> None:
    """``aj_present_stream``: the stream of this thread."""
    (channel,) = f.parameters
    home = f.get(channel, Channel.home_stream)
    table = f.call(_OF_THREAD, f.convert("trunc", f.get(channel, Channel.stream_key), "i64", "i32"))
    f.return_when(f.is_zero(table, "ptr"), home)
    place = f.get(channel, Channel.stream_place)
    f.return_when(f.test("uge", place, f.load("i64", table)), home)
    word = f.load("i64", f.element(table, "i64", place))
    f.return_when(f.test("eq", word, _HOME), home)
    f.ret(f.convert("inttoptr", word, "i64", "ptr"))


class _Calls:
    """Calls of the driver in one function; the first that fails is told to Python and ends the function."""

    def __init__(self, f: NativeFunction, channel: str, record: str) -> None:
        self.f = f
        self.channel = channel
        self.record = record
        self.functions = f.get(channel, Channel.calls)
        self.failed: Junction = f.junction("i64", stem="failed")
        self.left_out: Junction = f.junction(stem="left_out")

    def do(self, which: Field[int], *arguments: str | int, accepted: int = 0) -> str:
        """Call a function; what it reports goes with its place among them, unless it is 0 or ``accepted``.

        Returns what it reports.
        """
        f = self.f
        answers = f.get(self.channel, Channel.answers)
        before = f.load("i64", answers)
        result = f.call(_CALLS[which], *arguments, by=f.get(self.functions, which))
        counted = f.sub(f.load("i64", answers), before)
        f.go_unless(f.test("sge", counted, f.get(self.channel, Channel.counts)), self.left_out)
        number = f.binary("or", f.convert("zext", result, "i32"), which.place << 32)
        failed = f.is_set(result, "i32")
        if accepted:
            failed = f.both(failed, f.test("ne", result, accepted, "i32"))
        f.go_when(failed, self.failed, number)
        return result

    def finish(self, value: int | None = None) -> None:
        """Write what happens after a failure, and where a signal was handled in place of a function."""
        f = self.f
        f.begin(self.left_out)
        f.store("i64", f.get(self.channel, Channel.interrupted), f.get(self.channel, Channel.error))
        f.ret(value)
        (number,) = f.begin(self.failed)
        f.call(_ASK, self.channel, self.record, FAILED, number)
        f.ret(value)


def _ask(f: NativeFunction, channel: str, record: str, what: int) -> None:
    """Let Python do something; the function ends if that, or a signal, has ended the step."""
    f.return_when(f.is_set(f.call(_ASK, channel, record, what, 0)))


def _write_device(f: NativeFunction) -> None:
    """``aj_device``: one run."""
    run = f.parameters[0]
    channel = f.get(run, Run.channel)
    _check_sizes(f, channel, run)
    _check_addresses(f, channel, run)
    _gather_numbers(f, run)
    f.return_when(f.is_set(f.call(_USE, channel, run)))
    calls = _Calls(f, channel, run)
    stream = _stream(f, calls, run)
    with f.when(f.test("eq", f.get(run, Run.mode), SECOND)):
        _ask(f, channel, run, MAKE_GRAPH)
    f.put(run, Run.runs, f.add(f.get(run, Run.runs), 1))
    told_before = _times_told(f, run)
    with f.when(f.test("eq", f.get(run, Run.mode), GRAPH)):
        _launch_graph(f, calls, run, stream)
    with f.otherwise():
        _launch_kernels(f, calls, run, stream)
    with f.when(f.is_set(f.get(channel, Channel.waits))):
        calls.do(DriverCalls.synchronize, stream)
    f.return_when(f.is_zero(f.get(run, Run.device_errors), "ptr"))
    _wait_until_told(f, calls, run, stream, told_before)
    _take_report(f, calls, run, stream)
    f.ret()
    calls.finish()


def _check_sizes(f: NativeFunction, channel: str, run: str) -> None:
    """A graph is one for its sizes."""
    count = f.get(run, Run.n_sizes)
    now, known = f.get(run, Run.sizes), f.get(run, Run.known_sizes)
    changed, goes_on = f.junction(), f.junction()
    with f.loop(0, count, stem="size") as k:
        present, before = (f.load("i64", f.element(words, "i64", k)) for words in (now, known))
        f.go_when(f.test("ne", present, before), changed)
    f.go(goes_on)
    f.begin(changed)
    _ask(f, channel, run, RESIZED)
    f.go(goes_on)
    f.begin(goes_on)


def _check_addresses(f: NativeFunction, channel: str, run: str) -> None:
    """Kernels expect addresses that are aligned to the widest access; where one is not, others take their place."""
    addresses = f.get(run, Run.addresses)
    with f.loop(0, f.get(run, Run.n_addresses), stem="address") as k:
        moving = f.item(MovingAddress, addresses, k)
        word = f.load("i64", f.get(moving, MovingAddress.word))
        with f.when(f.is_set(f.binary("and", word, f.get(moving, MovingAddress.mask)))):
            _ask(f, channel, run, MISALIGNED)


def _gather_numbers(f: NativeFunction, run: str) -> None:
    numbers = f.get(run, Run.numbers)
    with f.loop(0, f.get(run, Run.n_numbers), stem="number") as k:
        number = f.item(HostNumber, numbers, k)
        f.copy_bytes(
            f.get(number, HostNumber.target), f.get(number, HostNumber.source), f.get(number, HostNumber.bytes)
        )


def _stream(f: NativeFunction, calls: _Calls, run: str) -> str:
    """The stream of the run; another one than that of the run before, whose memory it has, waits for that."""
    stream = f.call(_PRESENT, calls.channel)
    number, last = f.convert("ptrtoint", stream, "ptr"), f.get(run, Run.last_stream)
    with f.when(f.test("ne", number, last)):
        mark = f.get(run, Run.mark)
        with f.when(f.is_set(mark, "ptr")):
            calls.do(DriverCalls.record, mark, f.convert("inttoptr", last, "i64", "ptr"))
            calls.do(DriverCalls.wait, stream, mark, 0)
        f.put(run, Run.last_stream, number)
    return stream


def _launch_graph(f: NativeFunction, calls: _Calls, run: str, stream: str) -> None:
    graph, prologues = f.get(run, Run.graph), f.get(run, Run.prologues)
    with f.loop(0, f.get(run, Run.n_prologues), stem="prologue") as k:
        prologue = f.item(PrologueNode, prologues, k)
        node, how = f.get(prologue, PrologueNode.node), f.get(prologue, PrologueNode.how)
        calls.do(DriverCalls.set_parameters, graph, node, how)
    calls.do(DriverCalls.launch_graph, graph, stream)
    f.put(run, Run.graph_launches, f.add(f.get(run, Run.graph_launches), 1))


def _launch_kernels(f: NativeFunction, calls: _Calls, run: str, stream: str) -> None:
    launches = f.get(run, Run.launches)
    with f.loop(0, f.get(run, Run.n_launches), stem="launch") as k:
        launch = f.item(LaunchWords, launches, k)
        function, how = f.get(launch, LaunchWords.function), f.get(launch, LaunchWords.parameters)
        grid = (LaunchWords.blocks_x, LaunchWords.blocks_y, LaunchWords.blocks_z, LaunchWords.threads)
        numbers = [f.get(launch, word) for word in grid]
        what: list[str | int] = [function, *numbers, 1, 1, f.get(launch, LaunchWords.shared_bytes), stream, how]
        kind = f.get(launch, LaunchWords.kind)
        with f.when(f.test("eq", kind, TOGETHER, "i32")):
            calls.do(DriverCalls.launch_together, *what)
        with f.when(f.test("eq", kind, AS_GRAPH, "i32")):
            calls.do(DriverCalls.launch_graph, function, stream)
        has_blocks = reduce(f.both, (f.is_set(blocks, "i32") for blocks in numbers[:3]))  # open sizes may leave none
        with f.when(f.both(f.test("eq", kind, ALONE, "i32"), has_blocks)):
            calls.do(DriverCalls.launch, *what, "null")
    with f.when(f.test("eq", f.get(run, Run.mode), FIRST)):
        f.put(run, Run.mode, SECOND)


def _times_told(f: NativeFunction, run: str) -> str:
    """How often the run has told the host what it reports."""
    return f.load("i64", f.element(f.get(run, Run.told), "i64", 2), "acquire")


def _wait_until_told(f: NativeFunction, calls: _Calls, run: str, stream: str, before: str) -> None:
    """Wait until the run has told the host, while what follows in it goes on.

    The queue is asked from time to time: it ends with an error if a kernel failed.
    """
    told = f.junction(stem="told")

    def turn(state: list[str]) -> list[str]:
        turns = f.add(state[0], 1)
        with f.when(f.test("eq", f.binary("and", turns, _TURNS_PER_QUERY - 1), 0)):
            f.go_when(f.is_zero(calls.do(DriverCalls.query, stream, accepted=_NOT_READY), "i32"), told)
        return [turns]

    f.repeat_while(["i64"], [0], lambda state: f.test("eq", _times_told(f, run), before), turn)
    f.go(told)
    f.begin(told)


def _take_report(f: NativeFunction, calls: _Calls, run: str, stream: str) -> None:
    """Hand a report of the device to the step, and make room for the next."""
    told, device_errors = f.get(run, Run.told), f.get(run, Run.device_errors)
    error = f.get(calls.channel, Channel.error)
    word = f.load("i64", told)
    with f.when(f.is_set(word)):
        f.store("i64", word, error)
        f.store("i64", f.load("i64", f.element(told, "i64", 1)), f.element(error, "i64", 1))
        target = f.convert("ptrtoint", device_errors, "ptr")
        calls.do(DriverCalls.fill, target, 0, ERROR_BYTES, stream)


class _Transfer(_Calls):
    """The calls of a copy: the present stream, the bytes."""

    def __init__(self, f: NativeFunction) -> None:
        record = f.parameters[0]
        channel = f.get(record, TransferWords.channel)
        f.return_when(f.is_set(f.call(_USE, channel, record)))
        super().__init__(f, channel, record)
        self.stream = f.call(_PRESENT, channel)
        self.bytes = f.get(record, TransferWords.bytes)

    def wait(self) -> None:
        """Until the copy is done, which ends the function."""
        self.do(DriverCalls.synchronize, self.stream)
        self.f.ret()
        self.finish()


def _write_copy_in(f: NativeFunction) -> None:
    """``aj_copy_in``: from the host to the device.

    The driver has read ordinary memory when its call returns. Memory that it knows is read later, so that is awaited.
    """
    transfer = _Transfer(f)
    target, source = (f.get(transfer.record, word) for word in (TransferWords.target, TransferWords.source))
    target = f.convert("ptrtoint", target, "ptr")
    transfer.do(DriverCalls.copy_in, target, source, transfer.bytes, transfer.stream)
    attribute = f.get(transfer.functions, DriverCalls.pointer_attribute)
    with f.when(f.is_set(attribute, "ptr")):
        arguments = f.local("i32"), _MEMORY_TYPE, f.convert("ptrtoint", source, "ptr")
        result = f.call(_CALLS[DriverCalls.pointer_attribute], *arguments, by=attribute)
        f.return_when(f.test("eq", result, _INVALID_VALUE, "i32"))
    transfer.wait()


def _write_copy_out(f: NativeFunction) -> None:
    """``aj_copy_out``: from the device to the host, and wait until it is there."""
    transfer = _Transfer(f)
    target, source = (f.get(transfer.record, word) for word in (TransferWords.target, TransferWords.source))
    source = f.convert("ptrtoint", source, "ptr")
    transfer.do(DriverCalls.copy_out, target, source, transfer.bytes, transfer.stream)
    transfer.wait()


def _write_copy_within(f: NativeFunction) -> None:
    """``aj_copy_within``: from one place of the device to another, in the stream's order."""
    _, target, source = f.parameters
    transfer = _Transfer(f)
    transfer.do(DriverCalls.copy_within, target, source, transfer.bytes, transfer.stream)
    f.ret()
    transfer.finish()
