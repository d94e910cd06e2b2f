"""The campaign of kills: jobs whose ranks are killed one after the other, in all that a rank may do.

    python -m tests.distributed.kills --kills 200 --ranks 4

Every survivor must be told who it was and go on; a rank that is killed before it has joined must end the job; nobody is
left. Prints the longest times, which depend on the machine.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.distributed.worlds import HERE, launch

TOLD = re.compile(r"kill (\d+) \((\w+)\): told of \((\d+),\) on \('[^']+',\) after ([\d.]+) s")
AGAIN = re.compile(r"kill (\d+): again after ([\d.]+) s")
LIMIT_S = 600


def nobody_is_left(folder: str) -> None:
    """No process knows of the job's folder any more."""
    until = time.monotonic() + 30
    while left := [p for p in Path("/proc").glob("[0-9]*/cmdline") if folder.encode() in _read(p)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def killed_in_turn(ranks: int, seed: int) -> tuple[list[tuple[str, float]], list[float]]:
    """A job whose ranks are killed until one is left: by survivor, the phase and when it was told; when it went on."""
    with tempfile.TemporaryDirectory(prefix="autojit-kills-") as folder:
        done = launch(ranks, [str(HERE / "killed_on_ranks.py"), folder, str(seed)], more=["--elastic"], limit_s=LIMIT_S)
        nobody_is_left(folder)
    told, again = TOLD.findall(done.stdout), AGAIN.findall(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "the last of 1" in done.stdout, done.stdout
    assert len(told) == len(again) == ranks * (ranks - 1) // 2, done.stdout
    return [(phase, float(s)) for _, phase, _, s in told], [float(s) for _, s in again]


def killed_at_start() -> None:
    """A rank that is killed before it has joined ends the job; the launcher tells who it was."""
    with tempfile.TemporaryDirectory(prefix="autojit-kills-") as folder:
        done = launch(2, [str(HERE / "fails_on_ranks.py"), "kill-early", "1", folder], limit_s=LIMIT_S)
        nobody_is_left(folder)
    assert done.returncode == 137, done.stdout
    assert "rank 1 on" in done.stdout, done.stdout


def campaign(kills: int, ranks: int, seed: int = 0) -> str:
    """So many kills, one of twenty at the start: what is to be said of them."""
    told: list[tuple[str, float]] = []
    again: list[float] = []
    done = at_start = 0
    while done < kills:
        if done >= 20 * at_start:
            killed_at_start()
            done, at_start = done + 1, at_start + 1
            continue
        more = killed_in_turn(ranks, seed + done)
        told, again, done = told + more[0], again + more[1], done + ranks - 1
        print(f"{done} kills, {len(told)} survivors told; {_said(told, again)}", flush=True)
    return f"{done} kills, {at_start} of them at the start, nobody left; {_said(told, again)}"


def _said(told: list[tuple[str, float]], again: list[float]) -> str:
    longest = {phase: max(s for p, s in told if p == phase) for phase in sorted({p for p, _ in told})}
    shown = ", ".join(f"{phase} {s:.2f} s" for phase, s in longest.items())
    middle = sorted(again)[len(again) // 2]
    return (
        f"told after at most: {shown}; at work again {middle:.2f} s after the kill (median), {max(again):.2f} at most"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(campaign(options.kills, options.ranks, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
