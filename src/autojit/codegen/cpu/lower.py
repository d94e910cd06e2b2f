"""Schedule -> LoweredStep: which bodies run on which buffers, for CPUs.

A ``LoweredStep`` is still data without addresses: entries name a body (the text of a kernel, or a built-in of the plan
runner) and list symbolic arguments; ``runtime.plan`` binds them to memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autojit.codegen.cpu.attention_entries import attention_entries
from autojit.codegen.cpu.chunks import MAX_PARTIAL_CHUNKS
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.literal_arguments import lifts
from autojit.codegen.cpu.loops.kernel import print_loops
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.nested import Kept, nested_entries
from autojit.codegen.cpu.plan.records import (
    CopyContext,
    ProductContext,
    SlotSum,
    SumContext,
)
from autojit.codegen.cpu.product_words import GEMM_GFLOPS, gemm_scratch, matmul_words, product_types, slice_words
from autojit.codegen.cpu.products import gemm
from autojit.codegen.cpu.structured.kernels import print_structured
from autojit.codegen.first_elements import from_first_elements
from autojit.codegen.lowered import (
    Argument,
    BandEntry,
    BatchEntry,
    Callback,
    Count,
    Entry,
    ErrorWords,
    ForeignAddress,
    Immediate,
    LoweredStep,
    LowerInner,
    Offset,
    ProductAddress,
    Recount,
    Reporter,
    Scratch,
    Shared,
    Sliced,
    Words,
)
from autojit.codegen.lowering_errors import lowering_error
from autojit.codegen.target import HostTarget
from autojit.core.config import config
from autojit.core.errors import CompileError
from autojit.core.sizes import is_symbolic, size_max, typical
from autojit.ir.graph import Node, Value
from autojit.ops.scattering import Scattering
from autojit.schedule.bands import Band, Slices
from autojit.schedule.batches import Batch
from autojit.schedule.counts import counted_by, is_counting
from autojit.schedule.kernels import (
    CopyKernel,
    Kernel,
    LoopKernel,
    MatmulKernel,
    NestedKernel,
    StructuredKernel,
)
from autojit.schedule.loops import LoopProgram
from autojit.schedule.schedule import Schedule

COPY_BLOCK_BYTES = 1 << 20  # of one chunk: 40 us at memory's 27 GB/s, above the least work of a chunk


class _Lowering:
    def __init__(
        self,
        schedule: Schedule,
        target: HostTarget,
        shared: Shared,
        kernels: Sequence[Kernel | Band | Batch] | None = None,
        lower_inner: LowerInner | None = None,
    ) -> None:
        self.schedule = schedule
        self.kernels = schedule.kernels if kernels is None else kernels
        self.lower_inner = lower_inner or self._nested
        self.target = target
        self.entries: list[Entry | BandEntry | BatchEntry] = []
        self.shared = shared
        self.gemms, self.called_back, self.reporters = shared.gemms, shared.called_back, shared.reporters
        self.printed: dict[Any, KernelText] = {}
        self.lifts = lifts(from_first_elements(program)[0] for program in _programs(self.kernels))
        self.kept_loops: dict[int, Kept] = {}
        self.worker_scratch = 0  # per worker, in a band: its kernels run side by side in different slices

    def run(self) -> LoweredStep:
        behind: list[tuple[tuple[Node, ...], tuple[Value, ...], bool]] = []
        for kernel in self.kernels:
            try:
                self._lower(kernel)
            except CompileError:
                raise
            except Exception as error:
                raise lowering_error(_nodes(kernel), self.schedule, error) from error
            may_fail = not self.schedule.failing.isdisjoint(_members(kernel))
            added = len(self.entries) - len(behind)
            behind += [(_nodes(kernel), tuple(kernel.writes()), may_fail)] * added
        return LoweredStep(
            self.schedule,
            tuple(self.entries),
            frozenset(self.gemms),
            tuple(self.called_back),
            tuple(self.reporters),
            tuple([nodes for nodes, _, _ in behind]),
            tuple([written for _, written, _ in behind]),
            tuple([may_fail for _, _, may_fail in behind]),
        )

    def _lower(self, kernel: Kernel | Band | Batch) -> None:
        if isinstance(kernel, Band):
            self._band(kernel)
        elif isinstance(kernel, Batch):
            self._batch(kernel)
        elif isinstance(kernel, LoopKernel):
            self._loops(kernel)
        elif isinstance(kernel, MatmulKernel):
            self._matmul(kernel)
        elif isinstance(kernel, CopyKernel):
            self._copy(kernel.target, kernel.source)
        elif isinstance(kernel, NestedKernel):
            self.entries += nested_entries(kernel, self.lower_inner, self.kept_loops)
        elif kernel.accesses and kernel.node.outputs[0].type.dtype in GEMM_GFLOPS:
            self.gemms.add(kernel.node.outputs[0].type.dtype.short)
            self.entries += attention_entries(kernel)
        else:
            self._structured(kernel)

    def _nested(self, schedule: Schedule) -> LoweredStep:
        """A schedule inside this one, which shares its kernels and reports."""
        inner = _Lowering(schedule, self.target, self.shared)
        inner.printed = self.printed
        return inner.run()

    def _band(self, band: Band) -> None:
        """The band's entries on slices, then what combines the slices' partial results."""
        outer, self.entries = self.entries, []
        for kernel, cut in zip(band.kernels, band.cuts, strict=True):
            self.worker_scratch = size_max(self.worker_scratch, gemm_scratch(kernel, cut, band.slices))
        combines: list[Entry] = []
        for kernel, cut in zip(band.kernels, band.cuts, strict=True):
            if isinstance(kernel, LoopKernel):
                combines += self._loops(kernel, band)
            elif cut.contracts:
                assert isinstance(kernel, MatmulKernel)
                combines.append(self._contraction(kernel, band))
            else:
                assert isinstance(kernel, MatmulKernel)
                self._matmul(kernel, band)
        told = tuple([not (cut.contracts and band.slices.is_even) for cut in band.cuts])
        self.worker_scratch = 0
        entries = tuple(e for e in self.entries if isinstance(e, Entry))
        estimate = sum(e.estimate_ns for e in entries)
        outer.append(BandEntry(entries, told, band.slices.count, aligned(band.local_bytes), estimate))
        self.entries = [*outer, *combines]

    def _batch(self, batch: Batch) -> None:
        outer, self.entries = self.entries, []
        for kernel in batch.kernels:
            self._loops(kernel)
        entries = tuple(e for e in self.entries if isinstance(e, Entry) and e.chunks)
        estimate = sum(e.estimate_ns for e in entries)
        self.entries = [*outer, BatchEntry(entries, sum(e.chunks for e in entries), estimate)]

    def _loops(self, kernel: LoopKernel, band: Band | None = None) -> list[Entry]:
        program, firsts = from_first_elements(kernel.program)
        literals = list[Argument]()
        lift = self.lifts.get(program.form)
        if lift is not None:
            program, words = lift.program(program)
            literals += [Words(one) for one in words]
        slices = None if band is None else band.slices
        text = self._kernel_text(program, slices)
        label = "+".join(dict.fromkeys(n.op.name for n in kernel.nodes))
        loads = kernel.program.loads
        read = [_in_band(v, n * v.type.dtype.size_bytes, 0, band) for v, n in zip(loads, firsts, strict=True)]
        written = [_in_band(v, 0, 0, band) for v in kernel.writes()]
        buffers = [*read, *literals, *written]
        partials: list[Argument] = []
        if text.partial_bytes:
            chunks = MAX_PARTIAL_CHUNKS if is_symbolic(text.chunks) and band is None else text.chunks
            partials.append(Scratch(text.partial_bytes * chunks, per_worker=False))
        if text.scratch_bytes:
            partials.append(Scratch(text.scratch_bytes, per_worker=True))
        tail = (*partials, *self._last_arguments(text, kernel, program.lookup_nodes.values()))
        self.entries.append(Entry(text.text, "kernel", (*buffers, *tail), text.chunks, text.estimate_ns, label))
        if not text.partial_bytes:
            return []
        unread = len(program.loads) + len(program.stores)  # the combining function takes the same arguments
        shown = ((a.value, _in_band(a.value, 0, 0, band)) for a in program.accumulators)
        results = [
            Immediate(0) if isinstance(x, Sliced) and x.is_local else v for v, x in shown
        ]  # a slice keeps its own
        rest = [*results, *tail]
        combine = Entry(text.text, "kernel_combine", (*([Immediate(0)] * unread), *rest), 1, 500.0, "combine")
        if band is None:
            self.entries.append(combine)
        return [combine]

    def _kernel_text(self, program: LoopProgram, slices: Slices | None) -> KernelText:
        """What is printed for equal programs; those of one form are known to be equal without comparing them."""
        known: dict[Any, KernelText] = program.form.texts
        way = config.check, slices, tuple(program.in_place.get(s.value) for s in program.stores)
        text = known.get(way)
        if text is None:
            key = program.structure(), slices
            text = self.printed.get(key)
            if text is None:
                text = self.printed[key] = print_loops(program, "kernel", slices)
                self.shared.begin(text.text)
            known[way] = text
        return text

    def _contraction(self, kernel: MatmulKernel, band: Band) -> Entry:
        """A product over the rows: one partial product per slice, and the entry that adds them up."""
        output = kernel.node.outputs[0]
        dtype, result = product_types(kernel)
        size = dtype.size_bytes
        words, _, estimate = matmul_words(kernel)
        slices = band.slices
        m, n, k = words.m, words.n, slices.part(words.k)
        slot = aligned(m * n * result.size_bytes)
        scratch = self.worker_scratch
        body, part = slice_words(words, k, scratch, slices)
        self.gemms.add(dtype.short)
        slots = Scratch(slot * slices.count, per_worker=False)
        a_step, b_step = k * kernel.a.strides[-1] * size, k * kernel.b.strides[-2] * size
        arguments = ProductContext(
            a=_in_band(kernel.a.value, kernel.a.offset * size, a_step, band),
            b=_in_band(kernel.b.value, kernel.b.offset * size, b_step, band),
            c=Sliced(slots, 0, slot, is_local=False),
            words=Words(part),
            scratch=Scratch(scratch, per_worker=True),
        )
        label = f"matmul {m}x{k}x{n}"
        self.entries.append(Entry(f"@aj_{body}_{dtype.short}", "", arguments, 1, estimate, label))
        added = SumContext(to=output, slots=slots, words=Words(SlotSum(n=m * n, n_slots=slices.count, stride=slot)))
        sum_ns = 0.05 * m * n * typical(slices.count)
        return Entry(f"@aj_sum_slots_{result.short}", "", added, 1, sum_ns, "sum slices")

    def _matmul(self, kernel: MatmulKernel, band: Band | None = None) -> None:
        dtype, _ = product_types(kernel)
        if kernel.init is not None:
            memory = self.schedule.memory
            if memory.home(kernel.init) is not memory.home(kernel.node.outputs[0]):
                self._copy(kernel.node.outputs[0], kernel.init)
        words, chunks, estimate = matmul_words(kernel, None if band is None else band.slices)
        self.gemms.add(dtype.short)
        size = dtype.size_bytes
        m, n, k = words.m, words.n, words.k
        scratch = self.worker_scratch or aligned(gemm.scratch_bytes(dtype, words.row_block, words.col_block, k))
        arguments = ProductContext(
            a=_in_band(kernel.a.value, kernel.a.offset * size, 0, band),
            b=_in_band(kernel.b.value, kernel.b.offset * size, 0, band),
            c=_in_band(kernel.node.outputs[0], 0, 0, band),
            words=Words(words.but(scratch_bytes=scratch)),
            scratch=Scratch(scratch, per_worker=True),
        )
        self.entries.append(Entry(f"@aj_matmul_{dtype.short}", "", arguments, chunks, estimate, f"matmul {m}x{k}x{n}"))

    def _last_arguments(self, text: KernelText, kernel: Kernel, lookups: Iterable[Node]) -> list[Argument]:
        """What a kernel takes after its other arguments: one that can report errors, one with symbolic sizes."""
        last: list[Argument] = [Words(text.sizes)] if text.sizes else []
        if not text.reports:
            return last
        sites = tuple(lookups)
        looks = [*sites, *(node for node in kernel.nodes if node.op in text.failing)]
        is_known = kernel in self.schedule.failing or self.schedule.checked.issuperset(looks)
        assert is_known or config.check, "a kernel may fail, and the schedule does not know"
        self.reporters.append(Reporter(tuple(kernel.nodes), sites, text.failing))
        return [ErrorWords(), Immediate(len(self.reporters) - 1), *last]

    def _copy(self, target: Value, source: Value | None) -> None:
        """Copy, or clear when there is no source."""
        size = target.type.size_bytes
        start = Immediate(0) if source is None else source
        arguments = CopyContext(to=target, source=start, bytes=Immediate(size), block=Immediate(COPY_BLOCK_BYTES))
        chunks = -(-size // COPY_BLOCK_BYTES)
        self.entries.append(Entry("@aj_copy", "", arguments, chunks, typical(size) * 0.1, "copy"))

    def _structured(self, kernel: StructuredKernel) -> None:
        if kernel.node.op.of_ranks:
            from autojit.codegen.cpu.collective_entries import collective_entry  # few steps need it

            entry = collective_entry(kernel, self.shared)
            if entry is not None:
                self.entries.append(entry)
                return
        found = print_structured(kernel.node, self.target)
        operands = kernel.operands
        if found is not None and isinstance(kernel.node.op, Scattering):
            (result,) = kernel.node.outputs
            self._copy(result, None if kernel.clears else operands[0])
            operands = (result, *operands[1:])  # the scatter finds its base in place
        arguments: tuple[Argument, ...] = (*operands, *kernel.node.outputs)
        name = kernel.node.op.name
        if found is None:
            self.called_back.append(kernel.node.op)
            self.entries.append(Entry(Callback(kernel), "", arguments, 1, 20_000.0, f"callback {name}"))
            return
        self.shared.begin(found.text)
        counted = counted_by(kernel.node) if is_counting(kernel.node) else None
        if counted is not None:
            arguments = (*arguments, Count(counted))
        if found.partial_bytes:
            arguments = (*arguments, Scratch(found.partial_bytes * found.chunks, per_worker=False))
        if found.scratch_bytes:
            arguments = (*arguments, Scratch(found.scratch_bytes, per_worker=True))
        if found.product is not None:
            self.gemms.add(found.product.short)
            arguments = (*arguments, ProductAddress(found.product))
        arguments = (*arguments, *map(ForeignAddress, found.foreign))
        lookups = [kernel.node] * len(kernel.operands) if counted is None else ()
        arguments = (*arguments, *self._last_arguments(found, kernel, lookups))
        self.entries.append(Entry(found.text, "kernel", arguments, found.chunks, found.estimate_ns, name))
        if found.partial_bytes:
            self.entries.append(Entry(found.text, "kernel_combine", arguments, 1, 500.0, "combine"))
        if counted is not None:  # then what depends on the size
            self.entries.append(Entry("@aj_sizes", "", (Recount(counted),), 1, 50.0, "sizes"))


def _programs(kernels: Iterable[Kernel | Band | Batch]) -> Iterator[LoopProgram]:
    """The programs of kernels, also of those in bands."""
    for kernel in kernels:
        if isinstance(kernel, LoopKernel):
            yield kernel.program
        elif isinstance(kernel, Band):
            yield from _programs(kernel.kernels)


def _in_band(value: Value, offset_bytes: int, step_bytes: int, band: Band | None) -> Argument:
    """A value as an argument: in a band its address moves by ``step_bytes`` a slice, and local values stay in place.

    Kernels address local values by their position in the whole value, so the address moves back by one slice each.
    """
    if band is None:
        return Offset(value, offset_bytes) if offset_bytes else value
    if value in band.offsets:
        step = step_bytes - band.slice_bytes(value)
        return Sliced(value, band.offsets[value] + offset_bytes, step, is_local=True)
    return Sliced(value, offset_bytes, step_bytes, is_local=False)


def _members(kernel: Kernel | Band | Batch) -> Sequence[Kernel]:
    return kernel.kernels if isinstance(kernel, Band | Batch) else (kernel,)


def _nodes(kernel: Kernel | Band | Batch) -> tuple[Node, ...]:
    return tuple([node for member in _members(kernel) for node in member.nodes])


def lower(schedule: Schedule, target: HostTarget, shared: Shared | None = None) -> LoweredStep:
    """Lower every kernel for a machine.

    Raises:
        CompileError: it names the op and carries the graph text.
    """
    return _Lowering(schedule, target, shared or Shared()).run()


def lower_some(
    schedule: Schedule, target: HostTarget, kernels: Sequence[Kernel], shared: Shared, lower_inner: LowerInner
) -> LoweredStep:
    """Lower some kernels where others run elsewhere, also in the bodies of branches and loops.

    Args:
        shared: gets their reports and fallbacks.
        lower_inner: lowers what branches and loops among them run.

    Raises:
        CompileError: it names the op and carries the graph text.
    """
    return _Lowering(schedule, target, shared, kernels, lower_inner).run()
