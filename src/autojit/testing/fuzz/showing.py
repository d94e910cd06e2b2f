"""``show(program)``: the last line of a script that the fuzzer wrote: prints where eager and compiled runs differ."""

from __future__ import annotations

from autojit.testing.fuzz.running import ProgramFunction
from autojit.testing.fuzz.verdicts import Verdict, judge


def show(program: ProgramFunction, dtype: str = "float64") -> Verdict:
    """Print what eager and compiled runs of ``program(jit, see)`` give where they first differ; the verdict."""
    verdict = judge(program, dtype, passes_off=True)
    print(report(verdict))
    return verdict


def report(verdict: Verdict) -> str:
    """A verdict in a few lines."""
    lines = [f"{verdict.kind}{f' at {verdict.place}' if verdict.place else ''}"]
    if verdict.eager or verdict.compiled:
        lines.append(f"eager:    {verdict.eager}")
        lines.append(f"{verdict.mode or 'compiled'}: {verdict.compiled}")
    return "\n".join(lines)
