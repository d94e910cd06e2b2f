"""``Campaign``: many seeds in worker processes, for a time or a number of programs; shrinks and writes what they find.

A worker is given one seed at a time, so that a crash or a hang of the process is a finding of that seed, and the worker
is replaced. Every worker is also replaced after some hundred programs: what compiled code holds stays bounded.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

from autojit.core.config import config
from autojit.core.locks import new_lock
from autojit.testing.fuzz.generate import generate
from autojit.testing.fuzz.running import forget, load
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.shrink import judge_program, shrink
from autojit.testing.fuzz.verdicts import Verdict, judge

PROGRAMS_OF_A_WORKER = 400
LONGEST_S = 300.0  # one program: ten seconds were the longest seen, 60 with ten times as many processes as cores
COLLECTED_AFTER = 20_000  # new objects: at Python's own 700 the collector takes a fifth of a program's time
OPTIMISED_EVERY = 6  # every sixth program's kernels are optimised by LLVM, which takes half of a program's time
PASSES_OFF_EVERY = 5  # every fifth program also runs without passes: its kernels are compiled for it alone


@dataclass
class Summary:
    """What a campaign did."""

    programs: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0  # of all workers, compiling threads included
    kinds: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[tuple[int, Verdict]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, seed: int, verdict: Verdict) -> None:
        """Count one program."""
        self.programs += 1
        if verdict.is_finding:
            self.kinds["finding"] += 1
            self.findings[class_of(verdict)].append((seed, verdict))
        else:
            self.kinds[verdict.kind] += 1
        if verdict.kind == "refused":
            self.refusals[verdict.compiled] += 1
        if verdict.kind in ("broken", "eager error"):
            self.errors[verdict.eager.split("\n", 1)[0][:90]] += 1

    def text(self) -> str:
        """The summary as it is printed."""
        rate = self.programs / max(self.elapsed_s, 1e-9)
        ran = self.programs - self.kinds["broken"] - self.kinds["eager error"]
        lines = [
            f"{self.programs} programs in {self.elapsed_s:.0f} s ({rate:.1f} per second, "
            f"{self.programs / max(self.cpu_s, 1e-9):.1f} per second of processor time); "
            f"{100 * ran / max(self.programs, 1):.0f} % run eagerly to their end",
            ", ".join(f"{name}: {count}" for name, count in self.kinds.most_common()),
        ]
        if self.refusals:
            share = 100 * self.kinds["refused"] / max(self.programs, 1)
            lines.append(f"refusals ({share:.1f} %):")
            lines += [f"  {count:5} {text}" for text, count in self.refusals.most_common(12)]
        if self.findings:
            lines.append("findings by class (seeds):")
            for name, found in sorted(self.findings.items(), key=lambda item: -len(item[1])):
                seeds = " ".join(str(seed) for seed, _ in found[:8])
                lines.append(f"  {len(found):5} {name}: {seeds}{' ...' if len(found) > 8 else ''}")
        return "\n".join(lines)


def class_of(verdict: Verdict) -> str:
    """A finding's class: its kind, what it was seen in, and the mode."""
    _, has_part, part = verdict.place.partition(": ")
    place = part.split("[")[0].split(".")[0].rstrip("0123456789").strip() if has_part else "call"
    return f"{verdict.kind} ({verdict.mode}) in {place}"


def judge_seed(seed: int) -> Verdict:
    """Generate and judge the program of a seed."""
    program = generate(seed)
    name = str(seed)
    config.opt_level, before = 2 if seed % OPTIMISED_EVERY == 0 else 0, config.opt_level
    try:
        return judge(load(program.script(), name), program.dtype, passes_off=seed % PASSES_OFF_EVERY == 0)
    finally:
        config.opt_level = before
        forget(name)


def shrink_seed(seed: int, verdict: Verdict, seconds: float) -> str:
    """The shrunk script of a finding, with what it shows at its head."""
    small = shrink(generate(seed), verdict, seconds)
    found = judge_program(small)
    shown = report(found if found.is_finding else verdict).replace('"""', "'''").replace("\\", "/")
    return replace(small, note=f"Seed {seed}: {shown}\n").script()


class _Worker:
    """A process that is given one seed at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.done = 0

    def judge(self, seed: int) -> tuple[Verdict, float]:
        """The verdict, and its seconds of processor time. What ends or hangs the process is a finding of the seed."""
        self.done += 1
        self.pipe.send(seed)
        what = f"hang: no answer after {LONGEST_S:.0f} s"
        try:
            if self.pipe.poll(LONGEST_S):
                verdict, cpu_s = self.pipe.recv()
                return verdict, cpu_s
        except EOFError:
            self.process.join()
            what = f"crash: the process ended with {self.process.exitcode}"
        self.process.kill()
        self.done = PROGRAMS_OF_A_WORKER
        return Verdict(what, "call", "compiled", is_finding=True), 0.0

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()


class Campaign:
    """Runs seeds until the time or the seeds are over."""

    def __init__(
        self, seeds: Iterator[int], seconds: float, workers: int, tell: Callable[[int, Verdict], None]
    ) -> None:
        self.seeds, self.seconds, self.workers, self.tell = seeds, seconds, workers, tell
        self.summary = Summary()
        self._lock = new_lock()
        self._until = 0.0

    def run(self) -> Summary:
        """All programs; the summary."""
        began = time.monotonic()
        self._until = began + self.seconds
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                list(pool.map(lambda _: self._work(), range(self.workers)))
            except BaseException:
                self._until = 0.0  # the other threads end after their programs
                raise
        self.summary.elapsed_s = time.monotonic() - began
        return self.summary

    def _work(self) -> None:
        """One seed after the other."""
        worker = _Worker()
        while (seed := self._next()) is not None:
            if worker.done >= PROGRAMS_OF_A_WORKER:
                worker.stop()
                worker = _Worker()
            verdict, cpu_s = worker.judge(seed)
            with self._lock:
                self.summary.cpu_s += cpu_s
                self.summary.add(seed, verdict)
                if verdict.is_finding:
                    self.tell(seed, verdict)
            if time.monotonic() >= self._until:
                break
        worker.stop()

    def _next(self) -> int | None:
        with self._lock:
            return next(self.seeds, None)


def _serve(pipe: Connection) -> None:
    """A worker's life: a seed in, a verdict out."""
    gc.set_threshold(COLLECTED_AFTER)
    while True:
        try:
            seed = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        began = time.process_time()
        verdict = judge_seed(seed)
        pipe.send((verdict, time.process_time() - began))


def write_scripts(summary: Summary, folder: Path, of_each: int, seconds: float) -> list[Path]:
    """Shrink the first findings of each class in this process and write them down."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, found in summary.findings.items():
        for seed, verdict in found[:of_each]:
            path = folder / f"seed_{seed}.py"
            is_lost = verdict.kind.startswith(("crash", "hang"))
            text = generate(seed).script() if is_lost else shrink_seed(seed, verdict, seconds)
            path.write_text(text, encoding="utf-8")
            written.append(path)
            print(f"  {path}: {name}", flush=True)
    return written
