"""The first thing to run on a machine with a GPU: ``python -m tools.gpu_measure [--out FILE]``, some ten minutes.

Nothing is needed but autojit and NVIDIA's driver. Parts, which fail one by one:

- what the device and its driver are;
- **correct**: whole steps of ``benchmarks`` on the device against the same steps on the CPU. This comes before every
  figure: a fast wrong step is no step;
- **compile**: the driver's compiler on the texts of a step, one by one and on threads; machine code loaded again;
- **latency**: a launch, graphs of dependent kernels, small transfers, waiting;
- **rates**: copies on the device and to it, fused kernels, products with their errors;
- **steps**: time per step, and of the host per call; the first step of a second process.

``--dry-run`` is for machines without one: the emulated device runs the same parts at tiny sizes, so that they are known
to run; it is asked for no figures. The output is a table for `docs/performance.md`. Other frameworks on the same
device: ``python -m benchmarks.run --device cuda``.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from autojit.runtime.gpu.devices import CudaDevice

ROOT = Path(__file__).resolve().parents[1]
LEAST_DIFFERENCE, WORST_RATIO = 1e-4, 8.0
"""Of a result from the CPU's, relative to the largest: kernels add in other orders. Some steps make much of rounding
(Adam divides a gradient that is zero but for it by its own size), so eager and compiled steps of the CPU differ, too:
so many times that is allowed. Faults are far larger."""

EMPTY = "define ptx_kernel void @kernel(ptr addrspace(1) %x) {\n  ret void\n}\n"


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    repeats: int
    nodes: tuple[int, ...]
    copy_bytes: int
    products: tuple[int, ...]
    workloads: tuple[str, ...]
    steps: int


FULL = Sizes(
    repeats=200,
    nodes=(1, 10, 25, 100, 400),
    copy_bytes=1 << 30,
    products=(512, 1024, 2048, 4096),
    workloads=(
        "mlp_digits", "mlp_mnist", "softmax_layernorm", "black_scholes", "embedding_bag", "rosenbrock10",
        "pinn_burgers", "newton", "leapfrog", "heat", "gpt", "lstm",
    ),
    steps=5,
)  # fmt: skip
DRY = Sizes(2, (1, 3), 1 << 12, (16,), ("mlp_digits",), 2)


@dataclass
class Session:
    """The device, and the rows of the table so far."""

    device: CudaDevice
    sizes: Sizes
    rows: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0

    @property
    def is_dry(self) -> bool:
        return self.device.driver.is_emulated

    def row(self, what: str, value: object) -> None:
        self.rows.append((what, str(value)))
        print(f"{what}: {value}", flush=True)

    def figure(self, what: str, form: str, *values: float) -> None:
        """A row with figures, for which an emulated device is not asked."""
        self.row(what, "not measured: the device is emulated" if self.is_dry else form.format(*values))

    def device_us(self, work: Callable[[], object], most: int = 20) -> float:
        """Median microseconds of the device for some work; an emulated device does it once and gives no time."""
        driver, stream = self.device.driver, self.device.stream
        work()
        if self.is_dry:
            self.device.synchronize()
            return float("nan")
        start, end = driver.make_event(True), driver.make_event(True)
        found = []
        for _ in range(most):
            driver.record(start, stream)
            work()
            driver.record(end, stream)
            driver.synchronize_event(end)
            found.append(1e3 * driver.elapsed_ms(start, end))
        driver.destroy_event(start)
        driver.destroy_event(end)
        return statistics.median(found)

    def host_us(self, work: Callable[[], object], wait_each: bool = False) -> float:
        """Microseconds of the host per call; the device is waited for before and after, or after each."""
        self.device.synchronize()
        start = time.perf_counter()
        for _ in range(self.sizes.repeats):
            work()
            if wait_each:
                self.device.synchronize()
        elapsed_s = time.perf_counter() - start
        self.device.synchronize()
        return 1e6 * elapsed_s / self.sizes.repeats


# ------------------------------------------------------------------------------------------------------ kernels of ours


@dataclass
class Kernel:
    """A loaded kernel with the words that its launches read."""

    function: int
    words: Any
    addresses: Any

    @classmethod
    def empty(cls, device: CudaDevice) -> Kernel:
        """One that does nothing: what is measured is the way to it."""
        from autojit.runtime.llvm import compile_to_object

        text = compile_to_object(EMPTY, device.target).decode()
        module = device.driver.load(device.driver.assemble(text, device.target.cpu))
        words = np.zeros(1, np.int64)
        return cls(device.driver.function(module, "kernel"), words, np.array([words.ctypes.data], np.int64))

    @property
    def parameters(self) -> int:
        return int(self.addresses.ctypes.data)


@contextmanager
def device_memory(session: Session, *sizes: int) -> Iterator[list[int]]:
    """Addresses of fresh memory of the device."""
    driver = session.device.driver
    addresses = [driver.allocate(size) for size in sizes]
    try:
        yield addresses
    finally:
        session.device.synchronize()
        for address in addresses:
            driver.release(address)


# --------------------------------------------------------------------------------------------------------------- parts


def about(session: Session) -> None:
    """What the device and its driver are."""
    found, version = session.device.properties, session.device.driver.version
    session.row("device", f"{found.name}, {found.architecture}, {found.processors} processors")
    session.row("driver", f"CUDA {version // 1000}.{version % 1000 // 10}")
    free, total = session.device.driver.free_and_total()
    session.row("memory, GB", f"{total / 1e9:.1f}, {free / 1e9:.1f} of them free")


def results_of(name: str, place: str, sizes: Sizes, is_eager: bool = False) -> tuple[list[Any], Any]:
    """What some steps of a workload give on a device, with the parameters that they leave; and the step."""
    import autojit as aj
    from benchmarks.systems import plain_step
    from benchmarks.workloads import STEPS
    from benchmarks.workloads.problem import Program, Training

    aj.set_default_device(place)
    try:
        problem = STEPS[name].build(aj)
        assert not isinstance(problem, Program), "one compiled step each"
        plain = plain_step(aj, problem)
        step = partial(plain if is_eager else aj.jit(plain), *problem.args)
        for _ in range(sizes.steps):
            found = step()
    finally:
        aj.set_default_device(None)
    tensors = [*found] if isinstance(found, tuple | list) else [found]
    if isinstance(problem, Training):
        tensors += problem.parameters
    return [tensor.detach().cpu().numpy().astype(np.float64) for tensor in tensors], step


def difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest difference of results, relative to the largest element of each; infinite if one is not finite."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if not (np.isfinite(a) == np.isfinite(b)).all():
            return float("inf")
        size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        gap = np.abs(a - b)[np.isfinite(b)].max(initial=0.0)
        worst = max(worst, gap / size if size else gap)
    return float(worst)


def correct(session: Session) -> None:
    """Whole steps on the device against the CPU's."""
    for name in session.sizes.workloads:
        with reported(session, f"{name} on the device"):
            expected, _ = results_of(name, "cpu", session.sizes)
            found, _ = results_of(name, "cuda", session.sizes)
            rounding = difference(results_of(name, "cpu", session.sizes, is_eager=True)[0], expected)
            gap = difference(found, expected)
            verdict = "right" if gap <= max(LEAST_DIFFERENCE, WORST_RATIO * rounding) else "WRONG"
            text = (
                f"{verdict}: differs from the CPU's by {gap:.1e}, whose eager and compiled steps do by {rounding:.1e}"
            )
            session.row(f"{name} on the device", text)


def texts_of_steps(session: Session) -> list[str]:
    """PTX of the kernels of the session's steps, each once."""
    found: dict[str, None] = {}
    for name in session.sizes.workloads[: 3 if session.is_dry else None]:
        shown = results_of(name, "cuda", session.sizes)[1].func.show("ptx")
        found |= dict.fromkeys(re.split(r"(?m)^(?=\.version)", shown)[1:])
    return list(found)


def compiling(session: Session) -> None:
    """The driver's compiler, one text after the other and on threads, and loading what it made."""
    driver, architecture = session.device.driver, session.device.target.cpu
    texts = texts_of_steps(session)[:64]

    def assembled(text: str) -> bytes:
        session.device.use()
        return driver.assemble(text, architecture)

    start = time.perf_counter()
    codes = [assembled(text) for text in texts]
    one_by_one_s = time.perf_counter() - start
    with ThreadPoolExecutor(8) as pool:
        start = time.perf_counter()
        list(pool.map(assembled, [f"{text}\n// again" for text in texts]))
        threads_s = time.perf_counter() - start
    start = time.perf_counter()
    modules = [driver.load(code) for code in codes]
    load_s = time.perf_counter() - start
    for module in modules:
        driver.unload(module)
    count = len(texts)
    session.row("kernels of these steps", count)
    session.figure("compile a kernel, ms", "{:.1f}", 1e3 * one_by_one_s / count)
    session.figure("on 8 threads, ms each", "{:.1f}", 1e3 * threads_s / count)
    session.figure("load a compiled kernel, ms", "{:.2f}", 1e3 * load_s / count)
    session.figure("bytes of a compiled kernel", "{:.0f}", statistics.median(map(len, codes)))


def launches(session: Session) -> None:
    """One launch after the other, and graphs of kernels that wait for each other."""
    driver, stream = session.device.driver, session.device.stream
    kernel = Kernel.empty(session.device)

    def launch() -> None:
        driver.launch(kernel.function, (1, 1, 1), 32, kernel.parameters, stream)

    session.device_us(launch)
    session.figure("launch of a kernel, µs of the host", "{:.2f}", session.host_us(launch))
    session.figure("launch and wait, µs", "{:.1f}", session.host_us(launch, wait_each=True))
    for count in session.sizes.nodes:
        chain(session, kernel, count)


def chain(session: Session, kernel: Kernel, count: int) -> None:
    """A graph of kernels of which each waits for the one before."""
    from autojit.runtime.gpu.driver import KernelNode

    driver, stream = session.device.driver, session.device.stream
    nodes = [
        KernelNode(kernel.function, (1, 1, 1), 32, kernel.parameters, (number - 1,) if number else ())
        for number in range(count)
    ]
    start = time.perf_counter()
    graph = driver.make_graph(nodes)
    made_ms = 1e3 * (time.perf_counter() - start)

    def launch() -> None:
        driver.launch_graph(graph, stream)

    on_device, on_host = session.device_us(launch), session.host_us(launch)
    driver.destroy_graph(graph)
    form = "{:.1f} ({:.2f} each), of the host {:.2f}, made in {:.1f} ms"
    what = f"graph of {count} dependent empty kernels, µs"
    session.figure(what, form, on_device, on_device / count, on_host, made_ms)


def transfers(session: Session) -> None:
    """Copies between host and device, of a word and of what fills the bus, and within the device."""
    driver, stream, size = session.device.driver, session.device.stream, session.sizes.copy_bytes
    pinned = driver.allocate_pinned(size)
    ctypes.memset(pinned, 1, size)
    with device_memory(session, size, size) as (here, there):

        def to_device(size_bytes: int) -> None:
            driver.copy_in(here, pinned, size_bytes, stream)

        def to_host(size_bytes: int) -> None:
            driver.copy_out(pinned, here, size_bytes, stream)

        for what, copy in (("to the device", to_device), ("to the host", to_host)):
            session.figure(f"8 bytes {what} and wait, µs", "{:.1f}", session.host_us(partial(copy, 8), wait_each=True))
            session.figure(f"{what}, GB/s", "{:.1f}", size / session.device_us(partial(copy, size), 5) / 1e3)
        within_us = session.device_us(lambda: driver.copy_within(there, here, size, stream))
        session.figure("copy on the device, TB/s moved", "{:.2f}", 2 * size / within_us / 1e6)
    driver.release_pinned(pinned)


def products(session: Session) -> None:
    """Square products of sizes that the step knows: their rate, and their error beside that of NumPy."""
    import autojit as aj

    rng = np.random.default_rng(0)
    for size in session.sizes.products:
        multiply = aj.jit(lambda a, b: a @ b)  # anew: sizes that come after others are left open
        a, b = (rng.normal(size=(size, size)).astype(np.float32) for _ in range(2))
        x, y = aj.from_numpy(a).to("cuda"), aj.from_numpy(b).to("cuda")
        multiply(x, y)
        exact = a[:64].astype(np.float64) @ b.astype(np.float64)
        errors = [
            float(np.abs(found[:64] - exact).max() / np.abs(exact).max())
            for found in (multiply(x, y).cpu().numpy(), a @ b)
        ]
        session.row(f"product of {size}, float32: error", f"{errors[0]:.1e} (NumPy's {errors[1]:.1e})")
        elapsed_us = session.device_us(partial(multiply, x, y))
        session.figure(f"product of {size}, float32: TFLOP/s", "{:.1f}", 2 * size**3 / elapsed_us / 1e6)


def steps(session: Session) -> None:
    """Time per step, of the device and of the host, and the rate of memory that a step bound by it reaches."""
    from benchmarks.workloads import WORKLOADS

    for name in session.sizes.workloads:
        with reported(session, f"{name}, a step"):
            step = results_of(name, "cuda", session.sizes)[1]
            on_host = session.host_us(step)
            on_device = session.device_us(step)
            stats = step.func.stats()
            counts = [stats[key] for key in ("kernels", "device_entries", "graphs", "fallbacks")]
            session.row(f"{name}: kernels, runs of the device, graphs, call-backs", ", ".join(map(str, counts)))
            session.figure(f"{name}: a step, µs", "{:.1f}, with the host's {:.2f} a call", on_device, on_host)
            size = WORKLOADS[name].work().bytes
            if size:
                session.figure(f"{name}: TB/s", "{:.2f}", size / on_device / 1e6)


FIRST_STEP = """
import time
start = time.perf_counter()
import autojit as aj
imported = time.perf_counter()
aj.set_default_device("cuda")
from benchmarks.systems import prepare
from benchmarks.workloads import WORKLOADS
step = prepare("autojit", aj, WORKLOADS["mlp_digits"])
built = time.perf_counter()
step.call()
aj.cuda.synchronize()
print(1e3 * (imported - start), 1e3 * (built - imported), 1e3 * (time.perf_counter() - built))
"""


def second_process(session: Session) -> None:
    """What a process pays that finds every kernel in the cache: importing, making the model, the first step."""
    child = [sys.executable, "-c", FIRST_STEP]
    for what in ("a process that may compile", "a second process"):
        done = subprocess.run(child, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        imported, built, stepped = map(float, done.stdout.split())
        form = "{:.0f}, model {:.0f}, first step {:.0f}"
        session.figure(f"{what}: import, ms", form, imported, built, stepped)


PARTS: tuple[Callable[[Session], None], ...] = (
    about,
    correct,
    compiling,
    launches,
    transfers,
    products,
    steps,
    second_process,
)


@contextmanager
def reported(session: Session, what: str) -> Iterator[None]:
    """What fails is a row of the table, and its traceback is shown; the rest goes on."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        session.failed += 1
        session.row(what, f"FAILED: {type(error).__name__}: {str(error).splitlines()[0]}")


def table(rows: Sequence[tuple[str, str]]) -> str:
    """The rows as Markdown."""
    return "\n".join(["| what | found |", "|---|---|", *(f"| {what} | {found} |" for what, found in rows)]) + "\n"


def main() -> int:
    """Run the parts; 1 if one failed, or if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="on the emulated device, at tiny sizes, without figures")
    parser.add_argument("--only", default="", help="parts whose names contain this")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    options = parser.parse_args()
    if options.dry_run:
        os.environ["AUTOJIT_CUDA"] = "emulate"
    from autojit.runtime.gpu.devices import cuda_device

    device = cuda_device(0)
    if device.driver.is_emulated and not options.dry_run:
        parser.error("the device is emulated, so its times say nothing: unset AUTOJIT_CUDA, or ask for a --dry-run")
    session = Session(device, DRY if options.dry_run else FULL)
    for part in PARTS:
        if options.only in part.__name__:
            with reported(session, part.__name__):
                part(session)
    if options.out is not None:
        options.out.write_text(table(session.rows), encoding="utf-8")
    print(f"\n{table(session.rows)}")
    return int(session.failed > 0 or any(found.startswith("WRONG") for _, found in session.rows))


if __name__ == "__main__":
    sys.exit(main())
