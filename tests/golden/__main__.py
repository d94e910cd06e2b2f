"""``make golden``: whether graphs, schedules, plans and kernels of the corpus are what is recorded.

    python -m tests.golden [NAME ...] [--write] [--folder DIRECTORY]

Ends with 1 and a diff where something differs; ``--write`` records what is found instead (a change that is meant: say
why in its commit). NAME: only the steps whose names contain it.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from pathlib import Path

SHOWN_LINES = 40  # of one step's diff
os.environ["AUTOJIT_REFERENCE"] = "1"  # eager mode's own kernels are made once a process, by whichever step is first
os.environ["AUTOJIT_KEEP_STEPS"] = "0"  # every graph is scheduled and lowered
os.environ.setdefault("AUTOJIT_OPT_LEVEL", "0")  # LLVM's work is not compared
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main(arguments: list[str] | None = None) -> int:
    """Compare or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as cache:  # the recorded steps must not depend on what was compiled before
        os.environ["AUTOJIT_CACHE_DIR"] = cache
        return _compare(asked.names, asked.write, asked.folder)


def _compare(names: list[str], write: bool, folder: Path | None) -> int:
    from tests.golden import archive
    from tests.golden.corpus import cases, is_shared
    from tests.golden.printing import Printer

    printer = Printer()
    known = cases()
    chosen = [name for name in known if not names or any(part in name for part in names)]
    found = {name: known[name](printer) for name in chosen}
    place = folder or archive.RECORDED
    recorded, kernels = archive.read(place)
    if write:
        if names or not any(map(is_shared, known)):
            print("recording needs every step, those of ../shared/bench too", file=sys.stderr)
            return 2
        archive.write(found, printer.kernels, place)
        print(f"recorded {len(found)} steps with {len(printer.kernels)} kernels")
        return 0
    expected = {name: text for name, text in recorded.items() if name in found or not (names or is_shared(name))}
    differing = archive.differences(found, printer.kernels, expected, kernels)
    for name, (old, new) in differing.items():
        lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "recorded", name, n=2, lineterm=""))
        print(
            *lines[:SHOWN_LINES],
            *([f"... {len(lines) - SHOWN_LINES} more lines"] * (len(lines) > SHOWN_LINES)),
            sep="\n",
        )
    left = sum(name not in found for name in recorded) if not names else 0
    told = f"; {left} not compared: ../shared/bench is not here" if left else ""
    print(
        f"{len(found)} steps with {len(printer.kernels)} kernels, {len(differing)} differ from what is recorded{told}"
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
