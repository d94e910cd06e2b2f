"""Mutants by the dozen, against the checks that run them; the share that is seen.

A mutant that hangs or crashes the process counts as killed: nobody would ship it. So does one whose function cannot be
exchanged. Code that runs only while modules are imported cannot be changed in a process that has imported them, but for
the functions and tables that it makes: such mutants count as survivors.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from queue import SimpleQueue

from autojit.testing.mutants.equivalents import reason_of
from autojit.testing.mutants.reach import Check, Reach, digest_of
from autojit.testing.mutants.server import Attempt
from autojit.testing.mutants.suite import FOLDERS
from autojit.testing.mutants.targets import FAMILIES, ROOT, Target, every_mutation

SECOND_LOOK = 4.0
"""Times the seconds of the first, for a mutant that survives that: what runs in every capture is run by thousands of
tests, of which few are about it. About one mutant in seven gets there."""


@dataclass
class Outcome:
    """What became of the mutants."""

    killed: list[tuple[Target, str]] = field(default_factory=list)
    survivors: list[Target] = field(default_factory=list)
    equivalent: list[Target] = field(default_factory=list)
    elapsed_s: float = 0.0

    def add(self, target: Target, why: str) -> None:
        """Count one; what is known to mean the same is left out of the share."""
        if why:
            self.killed.append((target, why))
        elif reason_of(target):
            self.equivalent.append(target)
        else:
            self.survivors.append(target)

    @property
    def share(self) -> float:
        """Of those that mean something else."""
        return len(self.killed) / max(len(self.killed) + len(self.survivors), 1)

    def text(self) -> str:
        """The report."""
        total = len(self.killed) + len(self.survivors)
        by_family: Counter[str] = Counter(t.family for t, _ in self.killed)
        every: Counter[str] = Counter([*by_family.elements(), *(t.family for t in self.survivors)])
        killers = Counter(why.split(" ", 1)[0] for _, why in self.killed)
        lines = [f"{len(self.killed)} of {total} mutants killed ({100 * self.share:.1f} %) in {self.elapsed_s:.0f} s"]
        lines += [f"  {name:12} {by_family[name]:4} of {count}" for name, count in every.items()]
        lines.append("by: " + ", ".join(f"{name} {count}" for name, count in killers.most_common()))
        if self.survivors:
            lines.append("survivors:")
            lines += [f"  {t.identity}  {t.describe()}" for t in self.survivors]
        if self.equivalent:
            lines.append(f"{len(self.equivalent)} more survived that mean the same:")
            lines += [f"  {t.describe()}: {reason_of(t)}" for t in self.equivalent]
        return "\n".join(lines)


def sample_mutants(count: int | None, seed: int, families: Sequence[str] = ()) -> list[Target]:
    """All mutants, or a sample with equal parts of every family."""
    if count is None:
        return every_mutation(tuple(families))
    names = [f.name for f in FAMILIES if not families or f.name in families]
    draws = random.Random(seed)
    chosen: list[Target] = []
    for k, name in enumerate(names):
        known = every_mutation((name,))
        share = count // len(names) + (k < count % len(names))
        chosen += draws.sample(known, min(share, len(known)))
    return chosen


def known_reach(folder: Path) -> Reach:
    """Which checks run which statement: recorded once for each state of what is mutated and of the tests."""
    sources = [path for family in FAMILIES for path in (ROOT / family.folder).glob("*.py")]
    found: list[Reach] = []
    for part in ("laws", "graphs", "programs", *FOLDERS):
        tests = ROOT.parents[1] / part
        files = sources + (list(tests.rglob("*.py")) if tests.is_dir() else [])
        path = folder / f"reach-{part.replace('/', '-')}-{digest_of(files)}.npz"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            script = str(Path(__file__).with_name("record.py"))
            quiet = subprocess.DEVNULL
            subprocess.run(
                [sys.executable, script, str(path), part], env=_environment(folder), stdout=quiet, check=True
            )
        found.append(Reach.read(path))
    return reduce(Reach.joined, found)


def _environment(folder: Path) -> dict[str, str]:
    """Of the processes: this tree's package, one object cache for all of them."""
    paths = os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])
    cache = {"AUTOJIT_CACHE_DIR": str(folder / "kernels"), "AUTOJIT_TEST_CACHE": str(folder / "kernels")}
    return {**os.environ, **cache, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}


class _Servers:
    """A server per worker: each is asked about one mutant at a time."""

    def __init__(self, count: int, folder: Path) -> None:
        command = [sys.executable, "-m", "autojit.testing.mutants.server", *FOLDERS]
        pipe = subprocess.PIPE
        self.idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self.every = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment(folder))
            for _ in range(count)
        ]
        for server in self.every:
            self.idle.put(server)

    def ask(self, attempt: Attempt) -> str:
        """Why the mutant was killed, "" when it was not."""
        server = self.idle.get()
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps(attempt), file=server.stdin, flush=True)
        answer = server.stdout.readline()
        if not answer:
            raise RuntimeError("the server of mutants has ended")
        self.idle.put(server)
        return answer.strip()

    def close(self) -> None:
        """End them."""
        for server in self.every:
            server.communicate()


def run_mutants(targets: Sequence[Target], seconds: float, workers: int, folder: Path, loud: bool = False) -> Outcome:
    """Every target against checks that take about ``seconds``; what was recorded is kept in the folder."""
    began = time.monotonic()
    outcome = Outcome()
    reach = known_reach(folder)
    servers = _Servers(workers, folder)

    def attempt(target: Target) -> tuple[Target, str]:
        why, met = "", set[Check]()
        for longer in (1.0, SECOND_LOOK):
            found = reach.checks_of(target.path, target.mutation.statement, target.lines(), longer * seconds)
            checks = [check for check in found if check not in met]
            if why or (met and (reason_of(target) or not checks)):
                break
            path, wanted = str(ROOT / target.path), [(c.kind, c.name, c.verdict, c.elapsed_s) for c in checks]
            why = servers.ask(Attempt(path, target.mutation.function, target.text(), wanted))
            met.update(checks)
        return target, why

    with ThreadPoolExecutor(workers) as pool:
        for target, why in pool.map(attempt, targets):
            outcome.add(target, why)
            if loud:
                word = "killed  " if why else "SURVIVED"
                runners = reach.reaches(target.path, target.mutation.statement)
                print(f"{word} {target.identity} {target.describe()}  {why or f'{runners} checks run it'}", flush=True)
    servers.close()
    outcome.elapsed_s = time.monotonic() - began
    return outcome
