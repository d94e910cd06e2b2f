"""What every kernel takes of a GPU: registers, spills, shared memory, and how wide it accesses global memory.

    python -m tools.kernel_facts [NAME...] [--bench FOLDER] [--arch sm_90...] [--list]

Programs are the workloads of ``benchmarks``, the ``examples`` that take ``--device``, and, with ``--bench``, those of a
folder; a NAME chooses those that contain it. They are compiled for no device (`tools.kernel_programs`),
by the runtime's own way, and assembled by NVIDIA's assembler (``nvidia-cuda-nvcc``). A few blocks of each are run to
see their accesses (`tools.idle_device`): bytes by width, and the part of the 32-byte sectors that is used; of kernels
that were not launched the text tells (`tools.ptx_accesses`). Blocks are run for the first architecture alone.
Kernels have launches of their own, so that each is seen; with --joined as they are.

It ends with the bars, no spills, at most 168 registers, 9 of 10 global bytes in accesses of 16, and the kernels that
miss one. Of the bytes those are judged that could be accessed so: what is not, and why, is said by what the lanes asked
for (`tools.access_classes`), and where a launch has too few threads as it is (``few``): lanes that took four elements
would leave processors idle. Of a kernel whose buffers have fewer than 64 KiB in all the widths are told and not judged:
a GPU moves as much in 20 nanoseconds, while the launch takes a microsecond. Exits with 1 if a kernel misses a bar.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import prod
from pathlib import Path

from autojit.codegen.cuda.grid_plan import BUSY_THREADS
from autojit.codegen.cuda.register_limits import told_registers
from tests.ptxas import ARCHITECTURES, MOST_AT_ONCE, Assembled, assemble, ptxas
from tools.ptx_accesses import WIDEST, global_bytes, wide_share

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "kernel_facts"
PROCESSES = 2

MOST_REGISTERS = 168
WIDE_SHARE = 0.9
JUDGED_BYTES = 64 << 10
PROCESSORS = 132
"""Of the GPU that programs are compiled for without one."""
OTHER_ROOMS = ("matmul", "convolution", "index_update", "sort", "cumulative")
"""How the names of kernels begin that are not printed from loop programs."""


@dataclass(frozen=True)
class Kernel:
    """One launch of a program: of equal ones the first."""

    program: str
    label: str
    blocks: tuple[int, int, int]
    threads: int
    buffer_bytes: int
    ptx: str
    launches: int
    widths: Counter[int]
    classes: Counter[str]
    sectors: Counter[str]


@dataclass(frozen=True)
class Facts:
    """A kernel with what the assembler says of it."""

    kernel: Kernel
    found: Assembled

    @property
    def is_judged(self) -> bool:
        """Whether it moves enough for the width of its accesses to matter, and blocks of it were run."""
        return self.kernel.buffer_bytes >= JUDGED_BYTES and bool(self.kernel.classes)

    @property
    def all_wide(self) -> float:
        """The part of its bytes that is accessed 16 at once."""
        return wide_share(self.kernel.widths)

    @property
    def classes(self) -> Counter[str]:
        """Its bytes by what they are."""
        found, kernel = Counter(self.kernel.classes), self.kernel
        if prod(kernel.blocks) * kernel.threads < PROCESSORS * BUSY_THREADS and "narrow" in found:
            found["few"] = found.pop("narrow")
        return found

    @property
    def wide(self) -> float:
        """The part of the bytes that could be accessed 16 at once which is."""
        classes = self.classes
        could = classes["wide"] + classes["narrow"]
        return classes["wide"] / could if could else 1.0

    @property
    def used(self) -> float:
        """The part of the sectors it touches that an instruction uses."""
        sectors = sum(self.kernel.sectors.values())
        return sum(self.kernel.classes.values()) / sectors if sectors else 1.0

    @property
    def misses(self) -> list[str]:
        """The bars that it does not reach."""
        missed: list[str] = []
        if self.found.spilled_bytes or self.found.stack_bytes:
            missed.append(f"spills {self.found.spilled_bytes} bytes, stack {self.found.stack_bytes}")
        if self.found.registers > MOST_REGISTERS:
            missed.append(f"{self.found.registers} registers")
        if self.is_judged and self.wide < WIDE_SHARE:
            missed.append(f"{self.wide:.0%} of what could be wide")
        return missed

    def line(self) -> str:
        """One line of the list."""
        kernel, found = self.kernel, self.found
        grid = "x".join(str(n) for n in kernel.blocks if n != 1) or "1"
        by_width = " ".join(f"{width}:{count}" for width, count in sorted(kernel.widths.items()))
        whole = sum(self.classes.values())
        by_class = " ".join(f"{n / whole:.0%} {name}" for name, n in self.classes.most_common() if name != "wide")
        return (
            f"{kernel.program:26s} {found.registers:4d} {found.spilled_bytes + found.stack_bytes:4d} "
            f"{found.shared_bytes:6d} {self.all_wide:5.0%} {self.used:5.0%} {kernel.buffer_bytes / 1024:10.1f} "
            f"{grid:>9s}x{kernel.threads:<4d} x{kernel.launches:<3d} {kernel.label[:60]} [{by_width}] {by_class}"
        )


HEAD = f"{'program':26s} regs spil shared  wide  used     KiB        grid            kernel [bytes by width] the rest"


def kernels_for(
    architecture: str, names: Sequence[str], bench: Path | None, *, joins: bool, samples: bool
) -> tuple[list[Kernel], list[str]]:
    """The kernels of programs, and which programs stopped early."""
    command = [sys.executable, "-O", "-m", "tools.kernel_programs", *names, *(["--bench", str(bench)] if bench else [])]
    command += ["--texts"] * (not samples)
    environment = {**os.environ, "AUTOJIT_CUDA": f"emulate,{architecture}{'' if joins else ',apart'}"}
    environment["PYTHONWARNINGS"] = "ignore"
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    stopped = [f"{row['program']}: {row['stopped']}" for row in rows if "stopped" in row]
    if done.returncode:
        stopped.append(f"the programs ended with {done.returncode} in {rows[-1]['program'] if rows else 'the first'}")
    found: dict[tuple[str, str], Kernel] = {}
    for row in rows:
        if "stopped" in row:
            continue
        key = row["program"], row["ptx"]
        launches = found[key].launches + 1 if key in found else 1
        widths = Counter({int(k): v for k, v in row["widths"].items()}) if "widths" in row else global_bytes(row["ptx"])
        found[key] = Kernel(
            row["program"],
            row["kernel"],
            tuple(row["blocks"]),
            row["threads"],
            row["bytes"],
            row["ptx"],
            launches,
            widths,
            Counter(row.get("classes", {})),
            Counter(row.get("sectors", {})),
        )
    return list(found.values()), stopped


def _cached(text: str, architecture: str) -> Path:
    return CACHE / f"{sha256(f'{architecture} {ptxas()} {text}'.encode()).hexdigest()}.json"


def _assembled_anew(texts: Sequence[str], architecture: str) -> list[Assembled]:
    found = assemble(texts, architecture)
    for text, each in zip(texts, found, strict=True):
        _cached(text, architecture).write_text(json.dumps(asdict(each)))
    return found


def assembled(texts: Sequence[str], architecture: str) -> dict[str, Assembled]:
    """What the assembler says of texts, by text; each is asked for once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    known: dict[str, Assembled] = {}
    for text in dict.fromkeys(texts):
        path = _cached(text, architecture)
        if path.exists():
            known[text] = Assembled(**json.loads(path.read_text()))
    left = [text for text in dict.fromkeys(texts) if text not in known]
    parts = [left[first : first + MOST_AT_ONCE] for first in range(0, len(left), MOST_AT_ONCE)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        for part, found in zip(parts, pool.map(lambda p: _assembled_anew(p, architecture), parts), strict=True):
            known.update(zip(part, found, strict=True))
    return known


def facts_for(kernels: Sequence[Kernel], architecture: str) -> Iterator[Facts]:
    """The kernels with what is known of them: as the runtime takes them, told their registers where they spill."""
    known = assembled([kernel.ptx for kernel in kernels], architecture)
    told = {text: told_registers(text) for text, found in known.items() if found.spilled_bytes + found.stack_bytes}
    better = assembled(list(told.values()), architecture)
    for kernel in kernels:
        found = known[kernel.ptx]
        other = better[told[kernel.ptx]] if kernel.ptx in told else found
        yield Facts(kernel, other if other.stack_bytes < found.stack_bytes else found)


def _moved(judged: Sequence[Facts]) -> tuple[Counter[str], Counter[str]]:
    """Bytes of all launches by class, and of their sectors: those of the buffers, as blocks ask for them."""
    moved, sectors = Counter[str](), Counter[str]()
    for each in judged:
        by_byte = each.kernel.buffer_bytes * each.kernel.launches / sum(each.classes.values())
        for name, count in each.classes.items():
            moved[name] += round(by_byte * count)
            sectors[name] += round(by_byte * each.kernel.sectors["narrow" if name == "few" else name])
    return moved, sectors


def report(architecture: str, facts: Sequence[Facts], stopped: Sequence[str], *, lists_all: bool) -> int:
    """Print what was found; how many kernels miss a bar."""
    print(f"\n{architecture}: {len(facts)} kernels, {len({f.kernel.ptx for f in facts})} texts")
    for line in stopped:
        print(f"  stopped: {line.splitlines()[0]}")
    shown = facts if lists_all else [f for f in facts if f.misses]
    if shown:
        print(HEAD)
    for each in sorted(shown, key=lambda f: (f.kernel.program, -f.kernel.buffer_bytes)):
        print(each.line(), f"<- {', '.join(each.misses)}" if each.misses else "")
    judged = [f for f in facts if f.is_judged]
    moved, sectors = _moved(judged)
    loops = [f for f in judged if not f.kernel.label.startswith(OTHER_ROOMS)]
    spilling = sum(bool(f.found.spilled_bytes or f.found.stack_bytes) for f in facts)
    narrow = sum(f.wide < WIDE_SHARE for f in judged)
    print(
        f"{architecture}: {spilling} spill, {sum(f.found.registers > MOST_REGISTERS for f in facts)} take more than "
        f"{MOST_REGISTERS} registers (most: {max((f.found.registers for f in facts), default=0)}); {narrow} of "
        f"{len(judged)} judged access less than {WIDE_SHARE:.0%} of what could be {WIDEST} at once so"
    )
    whole = sum(moved.values()) or 1
    for name, count in moved.most_common():
        used = count / sectors[name]
        print(f"{architecture}: {count / whole:6.1%} of the bytes are {name}, {used:.0%} of their sectors used")
    alone = sum(f.all_wide >= WIDE_SHARE for f in loops)
    wide = sum(f.wide >= WIDE_SHARE for f in loops)
    print(f"{architecture}: of {len(loops)} kernels of loops {wide} reach {WIDE_SHARE:.0%}, {alone} of all their bytes")
    return sum(bool(f.misses) for f in facts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of programs; default: all")
    parser.add_argument("--bench", type=Path, help="a folder with a package ``workloads`` besides")
    parser.add_argument("--arch", nargs="+", default=list(ARCHITECTURES), choices=ARCHITECTURES)
    parser.add_argument("--list", action="store_true", help="every kernel, not only those that miss a bar")
    parser.add_argument("--joined", action="store_true", help="launches of several kernels as they are")
    options = parser.parse_args()
    if ptxas() is None:
        parser.error("there is no assembler: pip install nvidia-cuda-nvcc")
    missed = 0
    for number, architecture in enumerate(options.arch):
        kernels, stopped = kernels_for(
            architecture, options.names, options.bench, joins=options.joined, samples=not number
        )
        missed += report(architecture, list(facts_for(kernels, architecture)), stopped, lists_all=options.list)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
