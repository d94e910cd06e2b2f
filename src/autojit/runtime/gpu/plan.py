"""A run of a device bound to memory: what ``aj_device`` reads.

How to read this file: `DevicePlan` is one run. Kernels get their entry points here, because these depend on where the
buffers are: how addresses are aligned, which of them move. What a launch passes is written once (`bound_kernel`); of
buffers that stay in place the very words are the launch's parameters, so whoever moves one (`Binding.word`) moves the
parameter. `moving` is what changes in every call, `graphs` and `order` what must wait for what, `channel` the way to
the driver and back. `TransferPlan` is a copy between host and device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from autojit.codegen.cuda.host_records import FIRST, GRAPH, LAUNCH, MAKE_GRAPH, LaunchWords, Run, TransferWords
from autojit.codegen.cuda.prologue import prologue_text
from autojit.codegen.cuda.report import TOLD_BYTES
from autojit.codegen.lowered import DeviceRun
from autojit.core.errors import DeviceError
from autojit.core.records import record
from autojit.ir.graph import Node, Value
from autojit.runtime.gpu.bound_kernel import BoundKernel
from autojit.runtime.gpu.channel import DeviceChannel, Words
from autojit.runtime.gpu.graphs import BoundPrologue, RunGraph, graph_nodes
from autojit.runtime.gpu.memory import is_at_its_end
from autojit.runtime.gpu.moving import WORD_BYTES, Binding
from autojit.runtime.gpu.run_memory import RunMemory
from autojit.runtime.gpu.works import guarded, with_report, works_of

GRAPH_FROM_KERNELS = 2
"""One alone is launched as it is, addresses that move being its parameters: a graph would need a second kernel."""


@record
class RunStats:
    """Counts of one run since it was bound.

    Args:
        kernels: that it launches, with those that write its table.
        runs: how often it ran.
        graph_launches: how often by one launch of a graph.
        instantiations: graphs made.
    """

    kernels: int
    runs: int
    graph_launches: int
    instantiations: int


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
        self._graph: RunGraph | None = None
        works = list(works_of(run))
        self._is_graph = len(works) >= GRAPH_FROM_KERNELS
        works = with_report(works)
        self._memory = RunMemory(binding, self._device, works, uses_table=self._is_graph)
        self._bound = [
            BoundKernel(self._memory, work, number, is_guarded)
            for number, (work, is_guarded) in enumerate(zip(works, guarded(works, binding.home), strict=True))
        ]
        self._memory.finish()
        self._prologues: list[BoundPrologue] = []
        launches = len(self._memory.moving.prologues) + len(self._bound)
        self._rows = np.zeros((max(launches, 1), len(LaunchWords.fields)), np.uint64)
        self._words = self._written(launches)
        self.address = self._words.address
        channel.register(self.address, self)
        self._load()

    def _written(self, launches: int) -> Words:
        memory, moving = self._memory, self._memory.moving
        n_addresses, addresses = memory.moving_addresses
        return Words(
            Run(
                channel=self._channel.address,
                mode=FIRST,
                last_stream=self._home_stream,
                n_numbers=moving.n_numbers,
                numbers=moving.numbers_address,
                n_addresses=n_addresses,
                addresses=addresses,
                n_launches=launches,
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
        texts = [*(prologue_text(part.words) for part in parts), *(one.text() for one in self._bound)]
        functions = self._device.kernels.functions(texts)
        self._prologues = list(zip(parts, functions, strict=False))
        for one, function in zip(self._bound, functions[len(parts) :], strict=True):
            one.function = function
        heads = [
            LaunchWords(function=function, blocks_x=1, blocks_y=1, blocks_z=1, threads=1, parameters=part.parameters)
            for part, function in self._prologues
        ]
        for place, row in enumerate((*heads, *(one.row() for one in self._bound))):
            self._rows[place] = row
        self._words[Run.mode.place] = FIRST if self._is_graph else LAUNCH
        self._drop_graph()

    def moved(self) -> None:
        """Buffers that stay in place are elsewhere now: their words were written (`Binding.word`), the graph is old.

        Raises:
            CompileError: a kernel for the new alignment is rejected.
        """
        self._load()

    @property
    def stats(self) -> RunStats:
        """Counts since the run was bound."""
        runs, launches = self._words[Run.runs.place], self._words[Run.graph_launches.place]
        return RunStats(len(self._memory.moving.prologues) + len(self._bound), runs, launches, self._instantiations)

    def ptx(self) -> list[str]:
        """The kernels as the driver gets them."""
        return self._device.kernels.ptx(self.texts())

    def texts(self) -> list[str]:
        """The modules of its kernels, for the present addresses."""
        return [one.text() for one in self._bound]

    # -- what native code asks for

    def answer(self, what: int) -> None:
        """See `Asker`."""
        if what == MAKE_GRAPH:
            self._make_graph()
            return
        words = [ctypes.c_uint64.from_address(word).value for word in self._memory.moving_words]
        self._memory.widen(words)
        self._load()

    def kernel_named(self, function: int) -> str:
        """See `Asker`."""
        return next((one.work.label for one in self._bound if function and one.function == function), "")

    def kernels(self) -> list[str]:
        """See `Asker`."""
        return [one.work.label for one in self._bound]

    def _make_graph(self) -> None:
        self._device.use()
        nodes = graph_nodes(self._prologues, self._bound)
        graph = self._graph = RunGraph(self._device.driver, nodes, self._prologues)
        self._instantiations += 1
        self._words[Run.graph.place] = graph.number
        self._words[Run.n_prologues.place] = graph.n_prologues
        self._words[Run.prologues.place] = graph.prologues_address
        self._words[Run.mode.place] = GRAPH

    def _drop_graph(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            self._device.use()
            self._device.driver.synchronize(self._words[Run.last_stream.place])
            graph.destroy()

    def __del__(self) -> None:
        if not hasattr(self, "_words") or is_at_its_end():
            return
        with suppress(DeviceError):  # the device is at its end
            self._drop_graph()
            last = self._words[Run.last_stream.place]
            if last != self._home_stream:  # its memory goes back to who works there
                self._device.use()
                self._device.driver.synchronize(last)


class TransferPlan:
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
        self.nodes = nodes
        words = Words(TransferWords(channel=channel.address, target=0, source=0, bytes=source.type.size_bytes))
        for value, word in ((target, TransferWords.target), (source, TransferWords.source)):
            words[word.place] = binding.word(value, words.address + word.offset_bytes)
        self._words = words
        self.address = words.address
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
