"""Back ends: what compiles and runs graphs of one kind of device; the device of a graph's values chooses.

A `Backend` is what `compiler.compile` calls in its order: `machine` for passes and schedule, `lower` for code, `build`
for an executable. This module is the only one that names code generators. They are imported when a graph is lowered, so
that a step which is found in the cache does without; that of GPUs lowers the kernels of the host in a graph by the
CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from autojit.codegen.cpu.machine import CPU_MACHINE, machine_of
from autojit.codegen.lowered import LoweredStep, LowerInner, Shared
from autojit.codegen.target import HostTarget
from autojit.core.device import CPU
from autojit.core.errors import DeviceError
from autojit.core.machine import Machine
from autojit.core.once import once
from autojit.core.product_precision import may_round_operands
from autojit.core.records import record
from autojit.ir.graph import Graph, values_of
from autojit.runtime.bodies import begin_products
from autojit.runtime.build import build_executable
from autojit.runtime.executable import Executable
from autojit.runtime.host import cached_host_target
from autojit.runtime.printed_kernels import PrintedKernels
from autojit.schedule.kernels import Kernel
from autojit.schedule.schedule import Schedule

Places = Mapping[int, int]
"""Position of an input or output -> address of memory that never moves."""


@record
class Backend:
    """How graphs become executables for one machine."""

    machine: Machine
    target: Callable[[], Any]
    """What code is generated for; asked when a graph is lowered, because finding out may take a while."""
    begin: Callable[[Collection[str]], object]
    """Told the dtypes of a graph's products as soon as they are known, to make their code beside the schedule."""
    lower: Callable[[Schedule, Any], LoweredStep]
    build: Callable[[LoweredStep, Places, Places, Collection[int]], Executable]


def cpu_backend(machine: Machine = CPU_MACHINE) -> Backend:
    """A CPU that has nothing special; ``machine`` has other thresholds in tests."""

    def lowered(schedule: Schedule, target: HostTarget) -> LoweredStep:
        from autojit.codegen.cpu.lower import lower

        with PrintedKernels() as begin:
            return lower(schedule, target, Shared(begin))

    return Backend(machine, cached_host_target, begin_products, lowered, build_executable)


def cuda_backend() -> Backend:
    """The process's CUDA devices, which are of one kind."""
    from autojit.codegen.cuda.lower import lower as lower_for_devices
    from autojit.codegen.cuda.machine import CUDA_MACHINE
    from autojit.codegen.cuda.target import CudaTarget
    from autojit.runtime.gpu.devices import cuda_device, find_driver
    from autojit.runtime.gpu.driver import CONDITIONS_FROM

    driver = find_driver()
    decides = driver is not None and driver.version >= CONDITIONS_FROM
    machine = replace(CUDA_MACHINE, turns_loops=True) if decides else CUDA_MACHINE

    def on_host(schedule: Schedule, kernels: Sequence[Kernel], shared: Shared, lower_inner: LowerInner) -> LoweredStep:
        from autojit.codegen.cpu.lower import lower_some

        return lower_some(schedule, cached_host_target(), kernels, shared, lower_inner)

    def lowered(schedule: Schedule, target: CudaTarget) -> LoweredStep:
        return lower_for_devices(schedule, target, on_host)

    def target() -> CudaTarget:
        return replace(cuda_device(0).target, rounds_operands=may_round_operands())

    return Backend(machine, target, lambda dtypes: None, lowered, build_executable)


@once
def host_backend() -> Backend:
    """The CPU of this process, with what its processor can do besides."""
    return cpu_backend(machine_of(cached_host_target()))


_BACKENDS: dict[str, Backend] = {}
_MAKERS: dict[str, Callable[[], Backend]] = {CPU.type: host_backend, "cuda": cuda_backend}
"""Made when they are needed: the process's driver may be another one then, in tests, and asking takes time."""


@contextmanager
def compiling_by(backend: Backend, kind: str = CPU.type) -> Iterator[None]:
    """Inside, graphs on devices of a kind are compiled by another back end: for tests."""
    before = _BACKENDS.get(kind)
    _BACKENDS[kind] = backend
    try:
        yield
    finally:
        if before is None:
            del _BACKENDS[kind]
        else:
            _BACKENDS[kind] = before


def backend_of(graph: Graph) -> Backend:
    """The back end of the device that a graph's values are on; some may be on the CPU, which runs their kernels then.

    Raises:
        DeviceError: they are on several devices besides, or on one that nothing compiles for.
    """
    places = [place for place in dict.fromkeys(value.type.device for value in values_of(graph)) if place != CPU]
    if len(places) > 1:
        shown = ", ".join(map(str, places))
        raise DeviceError("a compiled step has values on several devices", {"devices": shown}, "move them before")
    kind = places[0].type if places else CPU.type
    found = _BACKENDS.get(kind)
    if found is None and kind in _MAKERS:
        found = _MAKERS[kind]()
    if found is None:
        raise DeviceError(f"no steps are compiled for device '{places[0]}'", {"known": ", ".join(_BACKENDS)})
    return found
