"""Mutants by the dozen: each in a process of its own, against the killers that may see it; the share that is seen.

A mutant whose module cannot be imported, or that hangs, counts as killed: nobody would ship it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from autojit.testing.fuzz.campaign import judge_seed
from autojit.testing.mutants.attempt import SEEN, UNSEEN
from autojit.testing.mutants.targets import FAMILIES, ROOT, Target, every_mutation

BASELINE_PROGRAMS = 150


@dataclass
class Outcome:
    """What became of the mutants."""

    killed: list[tuple[Target, str]] = field(default_factory=list)
    survivors: list[Target] = field(default_factory=list)
    elapsed_s: float = 0.0

    def text(self) -> str:
        """The report."""
        total = len(self.killed) + len(self.survivors)
        by_family: Counter[str] = Counter(t.family for t, _ in self.killed)
        every: Counter[str] = Counter([*by_family.elements(), *(t.family for t in self.survivors)])
        killers = Counter(why.split(" ", 1)[0] for _, why in self.killed)
        share = 100 * len(self.killed) / max(total, 1)
        lines = [f"{len(self.killed)} of {total} mutants killed ({share:.1f} %) in {self.elapsed_s:.0f} s"]
        lines += [f"  {name:12} {by_family[name]:4} of {count}" for name, count in every.items()]
        lines.append("by: " + ", ".join(f"{name} {count}" for name, count in killers.most_common()))
        if self.survivors:
            lines.append("survivors:")
            lines += [f"  {t.identity}  {t.describe()}" for t in self.survivors]
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


class Reached(NamedTuple):
    """A program on which both modes agree, and the product's functions that it runs."""

    kind: str
    functions: frozenset[str]  # "passes/simplify.py:_where"


def make_baseline(programs: int = BASELINE_PROGRAMS) -> dict[int, Reached]:
    """Verdicts of the unmutated product, and what each program reaches: no other program can see a mutant."""
    found: dict[int, Reached] = {}
    start = len(str(ROOT)) + 1
    for seed in range(programs):
        reached: set[str] = set()

        def note(frame: FrameType, event: str, _: Any, reached: set[str] = reached) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
                reached.add(f"{frame.f_code.co_filename[start:]}:{frame.f_code.co_qualname.split('.<locals>')[0]}")

        sys.setprofile(note)
        try:
            kind = judge_seed(seed).kind
        finally:
            sys.setprofile(None)
        if kind in ("agrees", "refused", "eager error"):
            found[seed] = Reached(kind, frozenset(reached))
    return found


def _reaching(target: Target, baseline: dict[int, Reached]) -> dict[int, str]:
    """The programs that run the mutated function, those that run little else first."""
    name = f"{target.path}:{target.mutation.function}"
    seeds = sorted((len(r.functions), seed) for seed, r in baseline.items() if name in r.functions)
    return {seed: baseline[seed].kind for _, seed in seeds}


def run_mutants(targets: Sequence[Target], seconds: float, workers: int, loud: bool = False) -> Outcome:
    """Every target in a process of its own; ``seconds`` for each killer that is bounded by time."""
    began = time.monotonic()
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="autojit-mutants-") as folder:
        baseline = make_baseline()

        def attempt(target: Target) -> tuple[Target, str]:
            return target, _run(target, _reaching(target, baseline), Path(folder), seconds)

        with ThreadPoolExecutor(workers) as pool:
            for target, why in pool.map(attempt, targets):
                if why:
                    outcome.killed.append((target, why))
                else:
                    outcome.survivors.append(target)
                if loud:
                    print(
                        f"{'killed  ' if why else 'SURVIVED'} {target.identity} {target.describe()}  {why}", flush=True
                    )
    outcome.elapsed_s = time.monotonic() - began
    return outcome


def _run(target: Target, programs: dict[int, str], folder: Path, seconds: float) -> str:
    """Why a mutant was killed, "" when it was not."""
    script = Path(__file__).with_name("attempt.py")
    name = target.identity.replace("/", "_").replace(":", "_")
    text, verdicts = folder / f"{name}.txt", folder / f"{name}.json"
    text.write_text(target.text(), encoding="utf-8")
    verdicts.write_text(json.dumps(programs), encoding="utf-8")
    arguments = [target.family, target.module, str(ROOT / target.path), str(text), str(verdicts), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            [sys.executable, str(script), *arguments],
            capture_output=True,
            text=True,
            timeout=60 * seconds + 300,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hang"
    if done.returncode == UNSEEN:
        return ""
    last = (done.stdout.strip() or done.stderr.strip()).rsplit("\n", 1)[-1]
    return last if done.returncode == SEEN else f"crash with {done.returncode}: {last}"[:160]
