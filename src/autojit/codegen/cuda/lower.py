"""Schedule -> LoweredStep: what devices are told and what the host does around it, for steps with values on GPUs.

A step with values on a device is a plan of the host's like any other. Kernels of the device that follow each other
are one entry ``@aj_device``; kernels of the host are lowered by its own code generator; copies between the two and ops
without code for the device, which the host computes on copies, are entries too. The schedule has put what the device
can do at once side by side (`execution_order`).

How to read: `_Lowering.run` sorts the kernels by who runs them, `_launches` says what a device is told for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from itertools import chain, pairwise

from autojit.codegen.cuda.begun_buffers import begun, loops_from_first_elements, product_from_first_elements
from autojit.codegen.cuda.decided import decided_work, is_decided_there
from autojit.codegen.cuda.grid_loops import print_grid
from autojit.codegen.cuda.products import print_product, product_key
from autojit.codegen.cuda.structured import print_structured
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.unrolled import UnrolledScan, unrolled_scan
from autojit.codegen.grid_text import GridText
from autojit.codegen.lowered import (
    Callback,
    Conditional,
    DeviceCopy,
    DeviceFill,
    DeviceRun,
    DeviceWork,
    Entry,
    Launch,
    LoweredStep,
    LowerInner,
    Offset,
    Reporter,
    Shared,
    Transfer,
)
from autojit.codegen.lowering_errors import lowering_error
from autojit.core.config import config
from autojit.core.device import CPU, Device
from autojit.core.errors import CompileError, HostDecides, SpecializeSize, UndecidedSizeError
from autojit.core.records import record
from autojit.core.sizes import is_counted
from autojit.ir.concrete import symbols_of
from autojit.ir.graph import Node, Value, values_of
from autojit.ops.control_flow import HoldsGraphs
from autojit.ops.scan_steps import Scan
from autojit.ops.scattering import Scattering
from autojit.schedule.counts import is_counting
from autojit.schedule.kernels import (
    CopyKernel,
    Kernel,
    LoopKernel,
    MatmulKernel,
    NestedKernel,
    StructuredKernel,
    device_of,
)
from autojit.schedule.loops import LoopProgram
from autojit.schedule.schedule import Schedule

HostLowering = Callable[[Schedule, Sequence[Kernel], Shared, LowerInner], LoweredStep]
"""How the host's code generator lowers some kernels of a schedule; bodies of branches and loops are lowered for it."""

LAUNCH_NS = 1_000.0  # to queue a kernel, as drivers are known to take; not measured here
TRANSFER_NS = 10_000.0  # a copy that is waited for, likewise
CALLBACK_NS = 20_000.0  # an op computed by NumPy, on top of its copies


class _Lowering:
    """One schedule: a step's, or that of a branch's or loop's body.

    Args:
        printed: what is printed for equal kernels, of the step and all that is inside.
    """

    def __init__(
        self,
        schedule: Schedule,
        target: CudaTarget,
        lower_on_host: HostLowering,
        shared: Shared,
        printed: dict[object, GridText],
    ) -> None:
        self.schedule = schedule
        self.target = target
        self.lower_on_host = lower_on_host
        self.shared = shared
        self.printed = printed
        self.parts: list[_Part] = []
        self.outputs = set(schedule.outputs)
        self.has_failed = False  # whether a kernel in front may have reported an error
        self.bodies: dict[int, LoweredStep] = {}  # by the schedule, which has no hash
        self.scans: dict[Kernel, UnrolledScan] = {}  # those that a device does, with their own kernels' numbers
        self.rounds: dict[Kernel, NestedKernel] = {}  # of longer ones: the loop over as many turns as a run takes

    def run(self) -> LoweredStep:
        kernels: list[Kernel] = []
        for kernel in self.schedule.kernels:
            assert isinstance(kernel, Kernel), "kernels of a device are neither sliced nor started together"
            kernels.append(kernel)
        for kernel in kernels:
            if isinstance(kernel, NestedKernel) and _spans_devices(kernel) and not _counts(kernel.node):
                self._unroll(kernel)
        hosts = [kernel for kernel in map(self._of_host_in_place_of, kernels) if kernel is not None]
        self.host = self.lower_on_host(self.schedule, hosts, self.shared, self._body)
        for kernel in kernels:
            try:
                self._lower(kernel)
            except CompileError:
                raise
            except Exception as error:
                raise lowering_error(kernel.nodes, self.schedule, error) from error
        parts = [piece for part in self.parts for piece in part.pieces()]
        return LoweredStep(
            self.schedule,
            tuple([part.entry() for part in parts]),
            frozenset(self.shared.gemms),
            tuple(self.shared.called_back),
            tuple(self.shared.reporters),
            tuple([tuple(part.nodes) for part in parts]),
            tuple([tuple(part.writes) for part in parts]),
            tuple([part.may_fail for part in parts]),
        )

    def _body(self, schedule: Schedule) -> LoweredStep:
        """What a branch or loop runs."""
        found = self.bodies.get(id(schedule))
        if found is None:
            inner = _Lowering(schedule, self.target, self.lower_on_host, self.shared, self.printed)
            found = self.bodies[id(schedule)] = inner.run()
        return found

    def _decided(self, kernel: NestedKernel) -> list[DeviceWork]:
        """A branch or loop that the device decides by itself.

        Raises:
            HostDecides: it cannot.
        """
        if _counts(kernel.node):
            raise HostDecides("sizes are counted in a branch or loop")
        bodies = [self._body(schedule) for schedule in kernel.schedules]
        return decided_work(kernel, bodies, commits=self._commits(kernel))

    def _unroll(self, kernel: NestedKernel) -> None:
        scan = unrolled_scan(kernel, self._body(kernel.schedules[0])) if isinstance(kernel.node.op, Scan) else None
        if scan is None:
            return
        self.scans[kernel] = scan
        if scan.op.length > scan.turns_at_a_time:
            self.rounds[kernel] = scan.rounds()

    def _of_host_in_place_of(self, kernel: Kernel) -> Kernel | None:
        """What the host's code generator lowers for a kernel, if anything."""
        if isinstance(kernel, NestedKernel) and is_decided_there(kernel):
            return None
        if kernel in self.scans:
            return self.rounds.get(kernel)
        if isinstance(kernel, NestedKernel) and _spans_devices(kernel):
            return kernel
        return kernel if _is_of_host(kernel) else None

    def _lower(self, kernel: Kernel) -> None:
        may_fail = kernel in self.schedule.failing
        self._place(kernel, may_fail)
        self.has_failed = self.has_failed or may_fail

    def _place(self, kernel: Kernel, may_fail: bool) -> None:
        """Make entries of a kernel, or a part of one."""
        made = self._of_host_in_place_of(kernel)
        for entry in self._of_host(made) if made is not None else ():
            self.parts.append(_Part(entry, list(kernel.nodes), kernel.writes(), may_fail))
        if kernel in self.scans:
            self._turns(kernel, self.scans[kernel], may_fail)
        if made is not None or kernel in self.scans:
            return
        work = None if _is_transfer(kernel) else self._launches(kernel)
        if work is not None:
            self._tell(kernel, work, may_fail)
            return
        if isinstance(kernel, StructuredKernel) and kernel.clears:
            self._tell(kernel, [DeviceFill(v, v.type.size_bytes) for v in kernel.operands[:1]], False)
        self.parts.append(_Part(self._by_the_host(kernel), list(kernel.nodes), kernel.writes(), may_fail))

    def _turns(self, kernel: Kernel, scan: UnrolledScan, may_fail: bool) -> None:
        """The turns of a scan that are no rounds of a loop."""
        commits = self._commits(kernel)
        rounds = self.rounds.get(kernel)
        done = 0 if rounds is None else scan.turns_in(rounds)
        if done < scan.op.length or rounds is None:
            self._tell(kernel, scan.turns(done, scan.op.length - done, goes_on=done > 0, commits=commits), may_fail)

    def _tell(self, kernel: Kernel, work: Sequence[DeviceWork], may_fail: bool) -> None:
        """Let a device do a kernel's work behind what it has been told."""
        last = self.parts[-1] if self.parts else None
        if last is None or not isinstance(last.made, Device) or last.made != device_of(kernel):
            last = _Part(device_of(kernel), [], [], False)
            self.parts.append(last)
        nodes = tuple(kernel.nodes)
        # those of a loop's turns have the nodes of its body
        told = [replace(each, nodes=nodes) if isinstance(each, Launch) and not each.nodes else each for each in work]
        last.take(_Part(last.made, list(nodes), kernel.writes(), may_fail, told))

    def _of_host(self, kernel: Kernel) -> list[Entry]:
        """What the host's code generator has made of a kernel: no two have the same nodes and results."""
        mine = tuple(kernel.nodes), tuple(kernel.writes())
        rows = zip(self.host.entries, self.host.origins, self.host.writes, strict=True)
        return [entry for entry, *of in rows if tuple(of) == mine and isinstance(entry, Entry)]

    def _by_the_host(self, kernel: Kernel) -> Entry:
        """A copy between memories, or an op computed by its eager rule on copies of its operands."""
        if isinstance(kernel, CopyKernel):
            name = "copy_in" if kernel.target.type.device != CPU else "copy_out"
            transfer = Transfer(kernel.target, kernel.source)
            return Entry(f"@aj_{name}", "", (transfer,), 1, TRANSFER_NS, name.replace("_", " "))
        assert isinstance(kernel, StructuredKernel | NestedKernel)
        name = kernel.node.op.name
        self.shared.called_back.append(kernel.node.op)
        called = StructuredKernel(kernel.node, kernel.operands)
        arguments = (*called.operands, *kernel.node.outputs)
        return Entry(Callback(called), "", arguments, 1, CALLBACK_NS + 2 * TRANSFER_NS, f"callback {name}")

    def _launches(self, kernel: Kernel) -> list[DeviceWork] | None:
        """What a device is told for a kernel; None: it has no code for it."""
        commits = self._commits(kernel)
        if isinstance(kernel, LoopKernel):
            return self._loops(kernel, commits)
        if isinstance(kernel, MatmulKernel):
            return self._product(kernel, commits)
        if isinstance(kernel, NestedKernel):
            return self._decided(kernel) if is_decided_there(kernel) else None
        if isinstance(kernel, CopyKernel):
            return self._copy(kernel.target, kernel.source, commits)
        return self._structured(kernel, commits)

    def _commits(self, kernel: Kernel) -> bool:
        """Whether a kernel may write what lasts after an error was reported.

        Who reads what is not written then is found where memory is known (`runtime.gpu.works.guarded`).
        """
        return self.has_failed and not self.outputs.isdisjoint(kernel.writes())

    def _copy(self, target: Value, source: Value, commits: bool) -> list[DeviceWork]:
        """A copy within the device; none where the target has the source's memory."""
        if self.schedule.overwriting.get(target) is source:
            return []
        return [DeviceCopy(target, source, target.type.size_bytes, commits)]

    def _loops(self, kernel: LoopKernel, commits: bool) -> list[DeviceWork]:
        program, firsts = loops_from_first_elements(kernel.program)
        text = self._grid(program)
        label = "+".join(dict.fromkeys(n.op.name for n in kernel.nodes))
        buffers = (*map(begun, program.loads, firsts), *kernel.writes())
        return self._launch(text, buffers, label, kernel, program.lookup_nodes.values(), commits)

    def _grid(self, program: LoopProgram) -> GridText:
        """What is printed for equal programs; those of one form are known to be equal without comparing them."""
        way = config.check, self.target, tuple(program.in_place.get(s.value) for s in program.stores)
        found: GridText | None = program.form.texts.get(way)
        if found is None:
            key = program.structure()
            if key not in self.printed:
                self.printed[key] = print_grid(program, self.target)
            found = program.form.texts[way] = self.printed[key]
        return found

    def _product(self, whole: MatmulKernel, commits: bool) -> list[DeviceWork]:
        kernel, firsts = product_from_first_elements(whole)
        key = product_key(kernel)
        text = self.printed.get(key)
        if text is None:
            text = self.printed[key] = print_product(kernel, self.target)
        a, b = (value.type.shape for value in kernel.node.inputs[:2])
        label = "+".join([f"matmul {a[-2]}x{a[-1]}x{b[-1]}", *dict.fromkeys(n.op.name for n in kernel.nodes[1:])])
        buffers = (*map(begun, kernel.reads(), firsts), *kernel.writes())
        return self._launch(text, buffers, label, kernel, (), commits)

    def _structured(self, kernel: StructuredKernel, commits: bool) -> list[DeviceWork] | None:
        node = kernel.node
        text = self._print_structured(kernel)
        if text is None:
            return None
        if kernel.epilogue is not None:
            buffers = (*kernel.operands, *kernel.epilogue.reads(), *kernel.writes())
            label = "+".join(dict.fromkeys(n.op.name for n in kernel.nodes))
            return self._launch(text, buffers, label, kernel, (), commits)
        operands: tuple[Value, ...] = kernel.operands
        work: list[DeviceWork] = []
        if isinstance(node.op, Scattering):  # it finds its base in its result
            (result,) = node.outputs
            if kernel.clears:
                work.append(DeviceFill(result, result.type.size_bytes, commits))
            else:
                work += self._copy(result, operands[0], commits)
            operands = (result, *operands[1:])
        lookups = [node] * len(operands)
        return [*work, *self._launch(text, (*operands, *node.outputs), node.op.name, kernel, lookups, commits)]

    def _print_structured(self, kernel: StructuredKernel) -> GridText | None:
        """Its kernel; None: there is none.

        Raises:
            SpecializeSize: it is written for given sizes, and some are open.
        """
        try:
            return print_structured(kernel, self.target)
        except UndecidedSizeError as error:
            node = kernel.node
            names = dict.fromkeys(n for v in (*node.inputs, *node.outputs) for n in sorted(symbols_of(v.type)))
            reason = f"the kernel of {node.op.name} is written for its sizes"
            raise SpecializeSize(tuple(names), reason) from error

    def _launch(
        self,
        text: GridText,
        buffers: tuple[Value | Offset, ...],
        label: str,
        kernel: Kernel,
        lookups: Iterable[Node],
        commits: bool,
    ) -> list[DeviceWork]:
        """A kernel that is launched; what combines its partial results follows by itself."""
        code = 0
        if text.reports:
            code = len(self.shared.reporters)
            self.shared.reporters.append(Reporter(tuple(kernel.nodes), tuple(lookups), text.failing))
        return [Launch(text, buffers, label, code, commits)]


@record(eq=False, frozen=False)
class _Part:
    """An entry under construction: ``made``, or all that a device is told at a time; and what it is of."""

    made: Entry | Device
    nodes: list[Node]
    writes: list[Value]
    may_fail: bool
    work: list[DeviceWork] = field(default_factory=list)
    kernels: list[_Part] = field(default_factory=list)  # what a device is told, kernel by kernel

    def take(self, part: _Part) -> None:
        """Go on with what another one is of."""
        self.nodes += part.nodes
        self.writes += part.writes
        self.may_fail = self.may_fail or part.may_fail
        self.work += part.work
        self.kernels.append(part)

    def pieces(self) -> list[_Part]:
        """What a device is told until a counted size decides how much it does, meanwhile, and from then on.

        Counted sizes are others in every call. What does not depend on them is launched as a graph all the same.
        """
        counted = [place for place, kernel in enumerate(self.kernels) if any(map(_is_counted, kernel.work))]
        if not counted:
            return [self]
        bounds = [0, counted[0], counted[-1] + 1, len(self.kernels)]
        found: list[_Part] = []
        for first, stop in pairwise(bounds):
            if first < stop:
                found.append(_Part(self.made, [], [], False))
                for kernel in self.kernels[first:stop]:
                    found[-1].take(kernel)
        return found

    def entry(self) -> Entry:
        """The finished entry."""
        if isinstance(self.made, Entry):
            return self.made
        run = DeviceRun(self.made, tuple(self.work))
        return Entry("@aj_device", "", (run,), 1, LAUNCH_NS * len(self.work), f"{len(self.work)} on {self.made}")


def _is_counted(work: DeviceWork) -> bool:
    """Whether a size that the step counts decides how much is done."""
    if isinstance(work, Conditional):
        return any(map(_is_counted, work.work))
    if not isinstance(work, Launch):
        return is_counted(work.size_bytes)
    if any(isinstance(buffer, Offset) and is_counted(buffer.offset_bytes) for buffer in work.buffers):
        return True
    kernel: GridText | None = work.kernel
    while kernel is not None:
        if any(map(is_counted, (*kernel.sizes, *kernel.blocks, kernel.partial_bytes))):
            return True
        kernel = kernel.combine
    return False


def _is_transfer(kernel: Kernel) -> bool:
    return isinstance(kernel, CopyKernel) and kernel.source.type.device != kernel.target.type.device


def _spans_devices(kernel: NestedKernel) -> bool:
    """Whether a branch or loop has anything to do with a device."""
    bodies = (values_of(schedule.graph) for schedule in kernel.schedules)
    return any(v.type.device != CPU for v in chain(kernel.operands, kernel.node.outputs, *bodies))


def _counts(node: Node) -> bool:
    """Whether sizes are counted in a branch or loop, so that the host has to wait in each turn."""
    if not isinstance(node.op, HoldsGraphs):
        return is_counting(node)
    return any(_counts(inner) for graph in node.op.graphs() for inner in graph.nodes)


def _is_of_host(kernel: Kernel) -> bool:
    return not _is_transfer(kernel) and device_of(kernel) == CPU


def lower(schedule: Schedule, target: CudaTarget, lower_on_host: HostLowering) -> LoweredStep:
    """Lower every kernel of a step for a GPU; those on the CPU's values are lowered by ``lower_on_host``.

    Raises:
        CompileError: it names the op and carries the graph text.
    """
    return _Lowering(schedule, target, lower_on_host, Shared(), {}).run()
