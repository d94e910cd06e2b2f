"""``python -m autojit.testing.fuzz``: the command."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

from autojit.testing.fuzz.campaign import Campaign, class_of, judge_seed, shrink_seed, write_scripts
from autojit.testing.fuzz.generate import generate
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.verdicts import Verdict
from autojit.testing.mutants.campaign import run_mutants, sample_mutants
from autojit.testing.mutants.targets import FAMILIES

WANTED = 0.95  # of the mutants, killed


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m autojit.testing.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on; default: 60")
    parser.add_argument("--programs", type=int, default=None, metavar="N", help="how many programs at most")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; default: 0")
    parser.add_argument("--only", type=int, default=None, metavar="SEED", help="print, run and shrink one program")
    parser.add_argument("--workers", type=int, default=1, help="processes; default: 1")
    parser.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="write shrunk scripts there")
    parser.add_argument("--shrink", type=int, default=1, metavar="N", help="findings of a class to shrink; default: 1")
    parser.add_argument("--shrink-seconds", type=float, default=20.0, help="for each of them; default: 20")
    parser.add_argument(
        "--mutants", type=int, nargs="?", const=-1, default=None, metavar="N",
        help="plant N errors (all of them, without N), one after the other, and count how many are seen",
    )  # fmt: skip
    parser.add_argument("--killer-seconds", type=float, default=30.0, help="for each search for a mutant; default: 30")
    kept = Path(tempfile.gettempdir()) / "autojit-mutants"
    parser.add_argument("--kept", type=Path, default=kept, metavar="FOLDER", help="for what mutants are met by; kept")
    parser.add_argument("--family", action="append", default=[], choices=[f.name for f in FAMILIES], help="of mutants")
    parser.add_argument("--verbose", action="store_true", help="print each finding as it is met")
    options = parser.parse_args(arguments)
    if options.only is not None:
        return _only(options.only, options.shrink_seconds)
    if options.mutants is not None:
        return _mutants(options)

    def tell(seed: int, verdict: Verdict) -> None:
        if options.verbose:
            print(f"seed {seed}: {report(verdict)}", flush=True)

    last = None if options.programs is None else options.seed + options.programs
    seeds = itertools.takewhile(lambda s: last is None or s < last, itertools.count(options.seed))
    summary = Campaign(seeds, options.seconds, options.workers, tell).run()
    print(summary.text(), flush=True)
    if options.out is not None:
        write_scripts(summary, options.out, options.shrink, options.shrink_seconds)
    return 1 if summary.findings else 0


def _mutants(options: argparse.Namespace) -> int:
    """How many planted errors are seen; 1 when fewer than 95 in 100."""
    targets = sample_mutants(None if options.mutants < 0 else options.mutants, options.seed, options.family)
    outcome = run_mutants(targets, options.killer_seconds, options.workers, options.kept, options.verbose)
    print(outcome.text())
    return 0 if outcome.share >= WANTED else 1


def _only(seed: int, seconds: float) -> int:
    """One program: its text, its verdict, its shrunk form."""
    print(generate(seed).script())
    verdict = judge_seed(seed)
    print(report(verdict))
    if verdict.is_finding:
        print(f"\n# {class_of(verdict)}; shrunk:\n{shrink_seed(seed, verdict, seconds)}")
    return 1 if verdict.is_finding else 0


if __name__ == "__main__":
    sys.exit(main())
