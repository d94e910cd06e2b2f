"""PTX of kernels for GPUs that are not here, and the machine code that NVIDIA's own assembler makes of it.

The assembler is the one of the wheel ``nvidia-cuda-nvcc``, which only tests use; where it is absent they are skipped.
LLVM ends the process where it cannot select an instruction, so texts are compiled in a child.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from autojit.codegen.cuda.register_limits import told_registers

T = TypeVar("T")

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
"""Turing, Ampere, Hopper and Blackwell: the oldest that is supported, and what later ones added instructions to."""


@dataclass(frozen=True)
class Share:
    """The texts of one generation: every so many of a list, from a first one on."""

    architecture: str
    first: int
    every: int

    def of(self, texts: Sequence[T]) -> Sequence[T]:
        """This generation's."""
        return texts[self.first :: self.every]

    def __str__(self) -> str:
        return self.architecture if self.every > 1 else f"all for {self.architecture}"


def shares(of_the_oldest: int = len(ARCHITECTURES)) -> pytest.MarkDecorator:
    """A test for each generation's part of its texts, so that each text is assembled once; for all of them with --slow.

    Args:
        of_the_oldest: it gets one of so many texts, the later ones share all: where it has forms of its own, which the
            later ones, alike among themselves, do not print.
    """
    later = len(ARCHITECTURES) - 1
    if of_the_oldest == len(ARCHITECTURES):
        parts = [Share(name, turn, len(ARCHITECTURES)) for turn, name in enumerate(ARCHITECTURES)]
    else:
        parts = [Share(ARCHITECTURES[0], 0, of_the_oldest)]
        parts += [Share(name, turn, later) for turn, name in enumerate(ARCHITECTURES[1:])]
    wholes = [Share(name, 0, 1) for name in ARCHITECTURES if Share(name, 0, 1) not in parts]
    slow = [pytest.param(whole, marks=pytest.mark.slow) for whole in wholes]
    return pytest.mark.parametrize("share", [*parts, *slow], ids=str)


MOST_AT_ONCE = 16
"""Texts of one call of the assembler: of 120 that it takes one by one, it ends with a damaged heap."""
LONGEST_S = 300

_REPORT = re.compile(
    r"Compiling entry function 'kernel_(\d+)'.*?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
    r"Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Assembled:
    """What a kernel takes of a GPU: registers of a thread, bytes of its stack and of those spilled, shared memory."""

    registers: int
    stack_bytes: int
    spilled_bytes: int
    shared_bytes: int


class Rejected(AssertionError):
    """A text that LLVM cannot compile, or that the assembler refuses."""


@cache
def ptxas() -> Path | None:
    """The assembler, where its wheel is installed."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).glob("*/bin/ptxas")):
            return path
    return None


needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="needs ptxas: pip install nvidia-cuda-nvcc (cuda-test.txt)")


def assemble(texts: Sequence[str], architecture: str) -> list[Assembled]:
    """What the kernels named ``kernel`` of PTX texts become, several in one call: a quarter of the time of one each.

    Raises:
        Rejected: one is refused.
    """
    named = [re.findall(r"^\.target (\S+)", text, re.MULTILINE)[0] for text in texts]
    found: dict[int, Assembled] = {}
    for target in dict.fromkeys(named):  # texts for one architecture alone say so
        numbers = [number for number, name in enumerate(named) if name == target]
        own = target if target.endswith("a") else architecture
        made = _in_parts([texts[number] for number in numbers], own)
        found.update(zip(numbers, made, strict=True))
    return [found[number] for number in range(len(texts))]


def as_loaded(texts: Sequence[str], architecture: str) -> list[Assembled]:
    """`assemble`, and again where it spills, told how many registers there are: as the runtime does (`gpu.modules`)."""
    found = assemble(texts, architecture)
    again = [number for number, made in enumerate(found) if made.spilled_bytes]
    told = assemble([told_registers(texts[number]) for number in again], architecture)
    return [dict(zip(again, told, strict=True)).get(number, made) for number, made in enumerate(found)]


def _in_parts(texts: Sequence[str], architecture: str) -> list[Assembled]:
    found: list[Assembled] = []
    for first in range(0, len(texts), MOST_AT_ONCE):
        part = texts[first : first + MOST_AT_ONCE]
        try:
            found += _assemble(part, architecture, first)
        except _Crash:
            for number, text in enumerate(part, first):
                found += _assemble([text], architecture, number)
    return found


class _Crash(Rejected):
    """The assembler ended without a word about a text: what it is given at once is too much for it."""


def _assemble(texts: Sequence[str], architecture: str, first: int) -> list[Assembled]:
    """What texts that are counted from ``first`` become, in one call."""
    assembler = ptxas()
    assert assembler is not None, "tests that assemble are marked needs_ptxas"
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{number}.ptx" for number in range(len(texts))]
        for number, text in enumerate(texts):
            # functions of equal names in several texts make the assembler corrupt its memory
            apart = re.sub(r"\bkernel\b", f"kernel_{number}", text).replace("aj_$_", f"aj_{number}_$_")
            (Path(folder) / names[number]).write_text(apart)
        command = [str(assembler), "-v", f"-arch={architecture}", *names, "-o", "/dev/null"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S)
    if done.returncode:
        raise _refusal(done.stderr, texts, architecture, first)
    found = {int(number): _measured(*figures) for number, *figures in _REPORT.findall(done.stderr)}
    return [found[number] for number in range(len(texts))]


def _measured(stack: str, stores: str, loads: str, registers: str, shared: str) -> Assembled:
    return Assembled(int(registers), int(stack), max(int(stores), int(loads)), int(shared or 0))


def _refusal(said: str, texts: Sequence[str], architecture: str, first: int) -> Rejected:
    found = re.search(r"(\d+)\.ptx, line (\d+); error\s*: (.*)", said)
    if found is None:
        return _Crash(f"{architecture}: {said or 'the assembler ended without a word'}")
    line = texts[int(found[1])].splitlines()[int(found[2]) - 1]
    place = f"in text {first + int(found[1])}, line {found[2]}: {line.strip()}"
    return Rejected(f"{architecture}: {found[3]}\n  {place}")


def ptx_of(texts: Sequence[str], architecture: str, processors: int = 132) -> list[str]:
    """PTX of LLVM modules, compiled in a child.

    Raises:
        Rejected: LLVM rejects one, or cannot select its instructions and ends the child.
    """
    request = json.dumps({"texts": list(texts), "architecture": architecture, "processors": processors})
    child = [sys.executable, "-m", "tests.ptx_child"]
    root = Path(__file__).parents[1]
    done = subprocess.run(child, input=request, cwd=root, capture_output=True, text=True, timeout=LONGEST_S)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if "No available targets are compatible" in done.stderr:
        pytest.skip("this LLVM is built without NVPTX")
    if done.returncode or len(lines) < len(texts):
        reason = done.stderr.strip().splitlines() or [f"the child ended with {done.returncode}"]
        raise Rejected(f"{architecture}: {reason[0]}\n  in text {len(lines)}:\n{texts[len(lines)]}")
    return lines
