"""A run of a device bound to memory: what ``aj_device`` reads.

How to read this file: `DevicePlan` is one run. Kernels get their entry points here, because these depend on where the
buffers are: how addresses are aligned, which of them move. What a launch passes is written once (`bound_kernel`); of
buffers that stay in place the very words are the launch's parameters, so whoever moves one (`Binding.word`) moves the
parameter. `moving` is what changes in every call, `graphs` and `order` what must wait for what, `channel` the way to
the driver and back. `TransferPlan` is a copy between host and device.

Where sizes are open, the step's size program writes what depends on them (numbers of blocks, parameters of kernels)
before the run; native code tells when they are others than before, because a graph is one for its sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from autojit.codegen.cuda.early_start import Start
from autojit.codegen.cuda.host_records import (
    ALONE,
    AS_GRAPH,
    FIRST,
    GRAPH,
    LAUNCH,
    MAKE_GRAPH,
    RESIZED,
    SECOND,
    LaunchWords,
    Run,
    TransferWords,
)
from autojit.codegen.cuda.joined_plan import JoinedGrid
from autojit.codegen.cuda.prologue import prologue_text
from autojit.codegen.cuda.report import TOLD_BYTES
from autojit.codegen.lowered import DeviceRun
from autojit.core.errors import DeviceError
from autojit.core.records import record
from autojit.core.sizes import is_counted, named_size
from autojit.ir.graph import Node, Value
from autojit.runtime.gpu.bodies import BoundBody, GridBody, Grids, bound, flat_launches, plan_items, repeated
from autojit.runtime.gpu.bound_kernel import BoundKernel, footprint, parameter_keys
from autojit.runtime.gpu.bound_launch import BoundLaunch, plan_grids
from autojit.runtime.gpu.channel import DeviceChannel, Words
from autojit.runtime.gpu.devices import settings
from autojit.runtime.gpu.early import starts
from autojit.runtime.gpu.graphs import BoundPrologue, KeptGraphs, RunGraph, graph_nodes
from autojit.runtime.gpu.memory import is_at_its_end
from autojit.runtime.gpu.moving import WORD_BYTES, Binding
from autojit.runtime.gpu.order import Access, Edges
from autojit.runtime.gpu.run_memory import RunMemory
from autojit.runtime.gpu.works import Work, flat, guarded, items_of, offset_of, with_report

GRAPH_FROM_LAUNCHES = 2
"""One alone is launched as it is, addresses that move being its parameters: a graph would need a second kernel."""


@record
class RunStats:
    """Counts of one run since it was bound.

    Args:
        launches: of a call, with those that write its table.
        runs: how often it ran.
        graph_launches: how often by one launch of a graph.
        instantiations: graphs made.
        bytes: of buffers that kernels of a call read and write.
    """

    launches: int
    runs: int
    graph_launches: int
    instantiations: int
    bytes: int


class DevicePlan:
    """One run, bound; ``address`` is the context of its entry.

    Args:
        binding: where the step's values are.
        run: what is done.
        channel: the executable's way to the device.
        nodes: what the run computes, for errors.

    Raises:
        CompileError: a kernel is rejected.
        OutOfMemoryError: the device has no memory for scratch or partial results.
    """

    def __init__(self, binding: Binding, run: DeviceRun, channel: DeviceChannel, nodes: Sequence[Node] = ()) -> None:
        self.nodes = nodes
        self._channel = channel
        self._device = channel.device
        self._home_stream = self._device.stream
        self._instantiations = 0
        self._untold = Words([0] * (TOLD_BYTES // WORD_BYTES))
        self._graphs = KeptGraphs(self._device.driver)
        self._items_of_run = with_report(items_of(run))
        works = list(flat(self._items_of_run))
        are_guarded = guarded(works, binding.home)
        self._memory = RunMemory(binding, self._device, works, run.device, repeated(self._items_of_run))
        footprints = [
            footprint(self._memory, work, number, is_guarded=is_guarded)
            for number, (work, is_guarded) in enumerate(zip(works, are_guarded, strict=True))
        ]
        grids = self._grids(works, are_guarded, footprints)
        has_bodies = any(isinstance(grid, GridBody) for grid in grids)
        is_counted = any(map(_is_counted, works))
        self._is_graph = (len(grids) >= GRAPH_FROM_LAUNCHES or has_bodies) and not is_counted
        self._memory.lay_out(uses_table=self._is_graph or has_bodies)
        self._kernels = [
            BoundKernel(self._memory, work, number, is_guarded)
            for number, (work, is_guarded) in enumerate(zip(works, are_guarded, strict=True))
        ]
        self._bind(grids)
        self._memory.finish()
        self._prologues: list[BoundPrologue] = []
        most = len(self._memory.moving.prologues) + len(works)
        self._rows = np.zeros((max(most, 1), len(LaunchWords.fields)), np.uint64)
        self._settle()
        self._watch(binding)
        has_memory = bool(self._memory.moving.prologues) or any(a.is_fixed for one in footprints for a in one)
        self._words = self._written(has_memory)
        self.address = self._words.address
        channel.register(self.address, self)
        self._load()

    def _grids(
        self, works: Sequence[Work], are_guarded: Sequence[bool], footprints: Sequence[Sequence[Access]]
    ) -> Grids:
        """Which kernels share launches, by the memory that they touch."""
        keys = [
            parameter_keys(self._memory, work, number, is_guarded)
            for number, (work, is_guarded) in enumerate(zip(works, are_guarded, strict=True))
        ]
        processors, joins = self._device.target.processors, settings().joins

        def stretch(first: int, end: int) -> list[JoinedGrid]:
            mine = slice(first, end)
            return plan_grids(works[mine], footprints[mine], keys[mine], processors, joins=joins)

        return plan_items(self._items_of_run, stretch)

    def _bind(self, grids: Grids) -> None:
        self._bound_grids = grids
        self._items = bound(grids, lambda grid: BoundLaunch(self._memory, self._kernels, grid))
        self._launches = list(flat_launches(self._items))
        self._body_graphs: list[RunGraph] = []

    def _settle(self) -> None:
        first = int(self._rows.__array_interface__["data"][0])
        for place, launch in enumerate(self._items, len(self._memory.moving.prologues)):
            if isinstance(launch, BoundLaunch):
                launch.settle(first + LaunchWords.size_bytes * place)

    def _watch(self, binding: Binding) -> None:
        """Words with what a graph is one for."""
        names = sorted(set().union(*(one.depends_on() for one in self._kernels)))
        regions = sorted(set().union(*(one.regions() for one in self._kernels)))
        self._n_sizes = len(names) + len(regions)
        self._sizes, self._known = (np.zeros(max(self._n_sizes, 1), np.uint64) for _ in range(2))
        start = int(self._sizes.__array_interface__["data"][0])
        for place, name in enumerate(names):
            binding.number(named_size(name, 2), start + WORD_BYTES * place)
        for place, region in enumerate(regions, len(names)):
            binding.region_word(region, start + WORD_BYTES * place)

    def _written(self, has_memory: bool) -> Words:
        memory, moving = self._memory, self._memory.moving
        n_addresses, addresses = memory.moving_addresses
        return Words(
            Run(
                channel=self._channel.address,
                mode=FIRST,
                last_stream=self._home_stream,
                mark=self._channel.mark() if has_memory else 0,
                n_sizes=self._n_sizes if self._is_graph else 0,
                sizes=int(self._sizes.__array_interface__["data"][0]),
                known_sizes=int(self._known.__array_interface__["data"][0]),
                n_numbers=moving.n_numbers,
                numbers=moving.numbers_address,
                n_addresses=n_addresses,
                addresses=addresses,
                n_launches=0,
                launches=int(self._rows.__array_interface__["data"][0]),
                n_prologues=0,
                prologues=0,
                graph=0,
                device_errors=0 if memory.errors is None else memory.errors.address,
                told=self._untold.address if memory.told is None else memory.told.address,
            )
        )

    def _load(self) -> None:
        """Have the kernels for the present addresses, and begin anew with their launches."""
        parts = self._memory.moving.prologues
        starts, self._after = self._begin()
        texts = [*(prologue_text(part.words) for part in parts), *self._texts(starts)]
        functions = self._device.kernels.functions(texts)
        self._prologues = list(zip(parts, functions, strict=False))
        for launch, function in zip(self._launches, functions[len(parts) :], strict=True):
            launch.function = function
        for place, (part, function) in enumerate(self._prologues):
            self._rows[place] = _row(function, part.parameters, ALONE)
        self._drop_graphs()
        for place, item in enumerate(self._items, len(parts)):
            row = item.row(self._rows[place]) if isinstance(item, BoundLaunch) else self._body_row(item)
            self._rows[place] = row
        self._words[Run.n_launches.place] = len(parts) + len(self._items)
        self._words[Run.mode.place] = FIRST if self._is_graph else LAUNCH

    def _body_row(self, body: BoundBody) -> LaunchWords:
        """A body as a row of its own: only graphs have conditions."""
        self._device.use()
        graph = RunGraph(self._device.driver, graph_nodes([], [body]), [])
        self._body_graphs.append(graph)
        return _row(graph.number, 0, AS_GRAPH)

    def moved(self) -> bool:
        """Buffers that stay in place are elsewhere now: their words were written (`Binding.word`), the graph is old.

        False: the run has to be bound again.

        Raises:
            CompileError: a kernel for the new alignment is rejected.
        """
        kernels = self._kernels
        works, are_guarded = [kernel.work for kernel in kernels], [kernel.is_guarded for kernel in kernels]
        grids = self._grids(works, are_guarded, [kernel.footprint() for kernel in kernels])
        if grids != self._bound_grids:  # what was apart is one memory now, or the other way
            if self._n_sizes:  # the size program writes to the launches that there are
                return False
            self._drop_graphs()
            self._bind(grids)
        self._load()
        return True

    @property
    def stats(self) -> RunStats:
        """Counts since the run was bound."""
        runs, launches = self._words[Run.runs.place], self._words[Run.graph_launches.place]
        moved = sum(kernel.traffic_bytes for kernel in self._kernels)
        count = len(self._memory.moving.prologues) + len(self._launches)
        return RunStats(count, runs, launches, self._instantiations, moved)

    def apart(self) -> Iterator[tuple[str, Sequence[Node]]]:
        """Let `address` be the context of one launch after another, each with its name and what it computes.

        At the end it is that of the whole run again. Each gathers anew what moves, which is the same in one call.
        """
        words = self._words
        launches, count, mode, runs = (words[word.place] for word in (Run.launches, Run.n_launches, Run.mode, Run.runs))
        named: list[tuple[str, Sequence[Node]]] = [("arguments", ()) for _ in self._prologues]
        named += [(item.label, item.nodes) for item in self._items]
        words[Run.mode.place], words[Run.n_launches.place] = LAUNCH, 1
        try:
            for number, each in enumerate(named):
                words[Run.launches.place] = launches + number * LaunchWords.size_bytes
                yield each
        finally:
            words[Run.launches.place], words[Run.n_launches.place] = launches, count
            words[Run.mode.place], words[Run.runs.place] = mode, runs + 1

    @property
    def last_stream(self) -> int:
        """The stream of the last run."""
        return self._words[Run.last_stream.place]

    def lines(self) -> list[str]:
        """Its launches and their kernels, for users."""
        return [line for item in self._items for line in item.lines()]

    def ptx(self) -> list[str]:
        """The kernels as the driver gets them."""
        return self._device.kernels.ptx(self.texts())

    def texts(self) -> list[str]:
        """The modules of its kernels, for the present addresses."""
        return self._texts(self._begin()[0])

    def _texts(self, starts: Sequence[Start]) -> list[str]:
        return [launch.text(start) for launch, start in zip(self._launches, starts, strict=True)]

    def _begin(self) -> tuple[Sequence[Start], Edges | None]:
        """How launches begin, and what they wait for if that was looked at.

        Nothing is known of those that other sizes may leave out, or that a body decides.
        """
        parts, launches = self._memory.moving.prologues, self._launches
        is_known = self._is_graph and not self._n_sizes and len(launches) == len(self._items)
        if is_known and self._device.starts_early:
            return starts([[part.part] for part in parts], launches, self._device.target.processors)
        return [Start()] * len(launches), None

    # -- what native code asks for

    def answer(self, what: int) -> None:
        """See `Asker`."""
        if what == MAKE_GRAPH:
            self._make_graph()
            return
        if what == RESIZED:
            self._resize()
            return
        words = [ctypes.c_uint64.from_address(word).value for word in self._memory.moving_words]
        self._memory.widen(words)
        self._load()

    def kernel_named(self, function: int) -> str:
        """See `Asker`."""
        return next((launch.label for launch in self._launches if function and launch.function == function), "")

    def kernels(self) -> list[str]:
        """See `Asker`."""
        return [kernel.work.label for kernel in self._kernels]

    def failed(self) -> None:
        """See `Asker`."""
        for launch in self._launches:
            launch.begin_anew()

    def _make_graph(self) -> None:
        self._device.use()
        nodes = graph_nodes(self._prologues, self._items, self._after, starts_early=self._device.starts_early)
        graph = RunGraph(self._device.driver, nodes, self._prologues)
        self._graphs.add(tuple(map(int, self._sizes)), graph, self.last_stream)
        self._instantiations += 1
        self._launch_by(graph)

    def _resize(self) -> None:
        """Other sizes: their graph, if there is one; else one by one, and a graph once they come again."""
        self._known[:] = self._sizes
        if not self._is_graph:
            return
        sizes = tuple(map(int, self._sizes))
        graph = self._graphs.find(sizes)
        if graph is None:
            self._words[Run.mode.place] = SECOND if self._graphs.is_due(sizes) else FIRST
        else:
            self._launch_by(graph)

    def _launch_by(self, graph: RunGraph) -> None:
        self._words[Run.graph.place] = graph.number
        self._words[Run.n_prologues.place] = graph.n_prologues
        self._words[Run.prologues.place] = graph.prologues_address
        self._words[Run.mode.place] = GRAPH

    def _drop_graphs(self) -> None:
        bodies, self._body_graphs = self._body_graphs, []
        if len(self._graphs) or bodies:
            self._device.use()
            self._graphs.drop(self.last_stream, also=bodies)

    def __del__(self) -> None:
        if not hasattr(self, "_words") or is_at_its_end():
            return
        with suppress(DeviceError):  # the device is at its end
            self._drop_graphs()
            last = self._words[Run.last_stream.place]
            if last != self._home_stream:  # its memory goes back to who works there
                self._device.use()
                self._device.driver.synchronize(last)


def _is_counted(work: Work) -> bool:
    """Whether a size that the step counts decides how much a kernel does: a graph would be one for a single call."""
    kernel, offsets = work.widest, map(offset_of, work.buffers)
    return any(map(is_counted, (*kernel.sizes, *kernel.blocks, kernel.partial_bytes, *offsets)))


def _row(function: int, parameters: int, kind: int) -> LaunchWords:
    """One thread, or a graph."""
    return LaunchWords(
        function=function, blocks_x=1, blocks_y=1, blocks_z=1, threads=1, parameters=parameters, kind=kind
    )


class CopyPlan:
    """What copies so many bytes within a device's memory; ``address`` is the context of ``aj_copy_within``."""

    def __init__(self, binding: Binding, channel: DeviceChannel, size_bytes: int, nodes: Sequence[Node] = ()) -> None:
        self.nodes = nodes
        self._words = Words(TransferWords(channel=channel.address, target=0, source=0, bytes=0))
        self.address = self._words.address
        word = TransferWords.bytes
        self._words[word.place] = binding.number(size_bytes, self.address + word.offset_bytes)
        channel.register(self.address, self)

    def answer(self, what: int) -> None:
        """See `Asker`: nothing but errors."""
        raise AssertionError("a copy asks for nothing")

    def kernel_named(self, function: int) -> str:
        """See `Asker`."""
        return ""

    def kernels(self) -> list[str]:
        """See `Asker`."""
        return []

    def failed(self) -> None:
        """See `Asker`."""


class TransferPlan(CopyPlan):
    """A copy between host and device, bound; ``address`` is the context of its entry.

    Args:
        binding: where the values are.
        target: what is written.
        source: what is read, as large.
        channel: the executable's way to the device.
        nodes: what the copy is for.
    """

    def __init__(
        self, binding: Binding, target: Value, source: Value, channel: DeviceChannel, nodes: Sequence[Node] = ()
    ) -> None:
        super().__init__(binding, channel, source.type.size_bytes, nodes)
        for value, word in ((target, TransferWords.target), (source, TransferWords.source)):
            self._words[word.place] = binding.word(value, self.address + word.offset_bytes)
