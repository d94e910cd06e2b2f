"""Run torch's own tests through autojit and count them: ``python -m tools.torch_tests SOURCES [FILE ...]``.

    python -m tools.torch_tests ~/pytorch test_indexing nn/test_pooling --reference /path/to/python

SOURCES is a checkout of torch, of which ``test/`` and ``torch/testing/`` are read; nothing of it enters this tree. A
FILE is named from ``test/``, without its ending; without one those of ``FILES`` run. Each file runs in a process of its
own, which goes on after the test that ended it. With ``--reference``, a Python that has torch, the same files run there
and only tests that pass there count; without it every test counts that is not skipped here. ``expecttest`` must be
installed, in both (`stand_ins.py` says what else of torch the tests find).

Printed are the counts by file and, for what fails, by cause: what ``internals.txt`` lists, with its reason, and every
other kind of failure with one test that shows it. ``--results`` keeps the lines of the tests; a file that is there
already is counted, not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = Path(__file__).with_name("internals.txt")
FILES = (
    "test_autograd", "autograd/test_functional", "autograd/test_complex", "test_indexing", "optim/test_lrscheduler",
    "optim/test_optim", "optim/test_swa_utils", "test_nn", "nn/test_convolution", "nn/test_dropout",
    "nn/test_embedding", "nn/test_init", "nn/test_lazy_modules", "nn/test_load_state_dict", "nn/test_module_hooks",
    "nn/test_multihead_attention", "nn/test_packed_sequence", "nn/test_parametrization", "nn/test_pooling",
    "nn/test_pruning", "test_view_ops", "test_shape_ops", "test_type_promotion", "test_tensor_creation_ops",
    "test_reductions", "test_dataloader", "test_serialization",
)  # fmt: skip
RESTARTS = 20
"""How many tests of a file may end their process before the file is given up."""

Results = dict[str, dict[str, Any]]


class Internal(NamedTuple):
    """A kind of failure that is about the inside of torch."""

    pattern: re.Pattern[str]
    reason: str


def internals() -> list[Internal]:
    """The lines ``pattern<TAB>reason`` of ``internals.txt``; the pattern is looked for in a test's name and error."""
    lines = [line for line in INTERNALS.read_text().splitlines() if line and not line.startswith("#")]
    return [Internal(re.compile(pattern), reason) for pattern, _, reason in (line.partition("\t") for line in lines)]


def run(file: str, out: Path, sources: Path, python: str, over: str, limit_s: float) -> None:
    """Run a file's tests; their lines are added to ``out``."""
    command = [python, "-m", "tools.torch_tests.child", str(sources / "test" / f"{file}.py"), str(out)]
    command += ["--sources", str(sources), "--over", over, "--limit", str(limit_s)]
    paths = [str(ROOT), str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    log = out.with_suffix(".log")
    for _ in range(RESTARTS):
        with log.open("a") as said:
            ended = subprocess.run(command, cwd=out.parent, env=environment, stdout=said, stderr=said, check=False)
        if not ended.returncode:
            return


def results(out: Path) -> Results:
    """The last line of each test; one that only started has ended its process."""
    found: Results = {}
    for line in map(json.loads, out.read_text().splitlines()):
        found[line["id"]] = line
    for line in found.values():
        if line["outcome"] == "started":
            line.update(outcome="failed", error="EndedProcess", message="")
    return found


def counted(ours: Results, theirs: Results | None) -> list[str]:
    """The tests that count."""
    if theirs is None:
        return [name for name, line in ours.items() if line["outcome"] != "skipped"]
    return [name for name, line in theirs.items() if line["outcome"] == "passed"]


def cause(name: str, line: dict[str, Any], known: Iterable[Internal]) -> tuple[bool, str]:
    """Whether a failure is about torch's inside, and its reason, or what the error begins with."""
    message = line.get("message", "").partition("\n\nTo execute")[0]
    text = f"{name} {line.get('error')}: {message}"
    for internal in known:
        if internal.pattern.search(text):
            return True, internal.reason
    if line["outcome"] == "skipped":
        return False, f"skipped: {message[:80]}"
    first = re.sub(r"\d+", "N", message.strip().partition("\n")[0])[:90]
    return False, f"{line.get('error')}: {first}"


def report(passed: Counter[str], totals: Counter[str], causes: dict[tuple[bool, str], list[str]]) -> None:
    """Counts by file, then by cause."""
    for file, total in totals.items():
        print(f"{file:32} {passed[file]:5} of {total:5}")
    inside = sum(len(names) for (is_internal, _), names in causes.items() if is_internal)
    ok, total = sum(passed.values()), sum(totals.values())
    print(f"{'all':32} {ok:5} of {total:5}  ({ok / max(total, 1):.1%})")
    print(f"{'without torch internals':32} {ok:5} of {total - inside:5}  ({ok / max(total - inside, 1):.1%})")
    for is_internal in (True, False):
        print(f"\n{'torch internals' if is_internal else 'other causes'}:")
        for (kind, reason), names in sorted(causes.items(), key=lambda item: -len(item[1])):
            if kind is is_internal:
                print(f"{len(names):5}  {reason}\n       {names[0]}")


def main(arguments: Sequence[str] | None = None) -> None:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.torch_tests", description=__doc__.partition("\n")[0])
    parser.add_argument("sources", type=Path, help="torch's sources")
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILE", help="a file of test/, without its ending")
    parser.add_argument("--reference", metavar="PYTHON", help="a Python that has torch: what passes there counts")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "torch_tests", help="where lines are kept")
    parser.add_argument("--limit", type=float, default=30.0, metavar="S", help="processor seconds a test may take")
    options = parser.parse_args(arguments)
    known, passed, totals = internals(), Counter[str](), Counter[str]()
    causes: dict[tuple[bool, str], list[str]] = defaultdict(list)
    pythons = {"autojit": sys.executable} | ({"torch": options.reference} if options.reference else {})
    for file in options.files:
        found: dict[str, Results] = {}
        for over, python in pythons.items():
            out = options.results.resolve() / over / f"{file.replace('/', '.')}.jsonl"
            out.parent.mkdir(parents=True, exist_ok=True)
            if not out.is_file():
                run(file, out, options.sources.resolve(), python, over, options.limit)
            found[over] = results(out)
        ours = found["autojit"]
        for name in counted(ours, found.get("torch")):
            totals[file] += 1
            line = ours.get(name, {"outcome": "failed", "error": "NotRun", "message": "the file was given up"})
            if line["outcome"] == "passed":
                passed[file] += 1
            else:
                causes[cause(name, line, known)].append(f"{file} {name}")
    report(passed, totals, causes)


if __name__ == "__main__":
    main()
