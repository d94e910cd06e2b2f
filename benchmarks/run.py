"""Measure autojit and the peers that are installed: every (workload, system) in a fresh process, round after round.

    python -m benchmarks.run --workloads mlp_digits,gpt --systems autojit,torch-eager,jax --rounds 3 --out results/bench
    python -m benchmarks.run --report results/bench.json

Writes OUT.json with every record and OUT.md with the tables. Round 0 of a system starts with empty caches (cold), later
rounds keep them (warm). A run that other processes disturbed is discarded and repeated once.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.overheads import import_seconds, installed_mb
from benchmarks.report import Record, report
from benchmarks.systems import OURS, PEERS, environment, is_installed
from benchmarks.timing import wait_until_quiet
from benchmarks.worker import MARK
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated names; empty for none")
    parser.add_argument("--systems", default="", help="default: all that are installed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where tensors are made")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=3, help="the first is cold")
    parser.add_argument("--seconds", type=float, default=2.0, help="steady-state time per process")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a process is given up")
    parser.add_argument("--foreign", type=float, default=0.15, help="cores that others may use in a valid run")
    parser.add_argument("--no-overheads", action="store_true", help="skip import time, size, dispatch and call costs")
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while a process is timed")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    parser.add_argument("--report", type=Path, help="only print the tables of this JSON file")
    return parser.parse_args()


class Runner:
    """Starts the measuring processes of one run and keeps its caches."""

    def __init__(self, chosen: argparse.Namespace, caches: Path) -> None:
        self.chosen = chosen
        self.caches = caches

    @contextlib.contextmanager
    def quiet_machine(self) -> Iterator[None]:
        """The lock, if there is one, and a moment in which others leave the cores alone."""
        with contextlib.ExitStack() as stack:
            if self.chosen.lock is not None:
                import fcntl

                file = stack.enter_context(self.chosen.lock.open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            wait_until_quiet(self.chosen.foreign, patience_s=12.0)
            yield

    def worker(self, kind: str, system: str, name: str, cache: Path) -> Record:
        """One process; its record, or ``{"error": ...}``."""
        device, threads = self.chosen.device, self.chosen.threads
        command = [sys.executable, "-m", "benchmarks.worker", kind, system, name, device, str(threads)]
        with self.quiet_machine():
            command += [str(self.chosen.seconds), repr(time.time())]
            process = subprocess.Popen(
                command,
                env=environment(system, cache, threads, device),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(timeout=self.chosen.timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the helpers that some peers start
                process.communicate()
                return {"error": f"no result within {self.chosen.timeout} s"}
        lines = [line for line in output.splitlines() if line.startswith(MARK)]
        if not lines:
            return {"error": f"exit status {process.returncode}: {' '.join(output.split())[-400:]}"}
        record: Record = json.loads(lines[-1].removeprefix(MARK))
        return record

    def workload(self, system: str, name: str, round_: int) -> Iterator[Record]:
        """The record of one round, after a discarded one if it was disturbed."""
        cache = self.caches / f"{name}-{system}"
        if round_ == 0:
            shutil.rmtree(cache, ignore_errors=True)
        record = self.worker("workload", system, name, cache)
        labels: Record = {"system": system, "workload": name, "round": round_, "discarded": False}
        if record.get("foreign_cores", 0.0) <= self.chosen.foreign:
            yield labels | record
            return
        again = self.worker("workload", system, name, cache)
        if "error" in again:
            yield labels | record
            return
        yield labels | record | {"discarded": True}
        if round_ == 0:  # the repetition found warm caches: the cold times are those of the first
            again |= {key: record[key] for key in ("to_first_step_s", "first_call_s")}
        yield labels | again

    def workloads(self, names: list[str], systems: list[str]) -> Iterator[Record]:
        for name in names:
            failed: set[str] = set()
            for round_ in range(self.chosen.rounds):
                for system in (s for s in systems if s not in failed):
                    for record in self.workload(system, name, round_):
                        if "error" in record:
                            failed.add(system)
                        print(progress(record), flush=True)
                        yield record

    def overheads(self, system: str) -> Record:
        """Dispatch and call costs, import time over NumPy's, installed size."""
        cache = self.caches / f"overheads-{system}"
        record = self.worker("overheads", system, "-", cache)
        with self.quiet_machine():
            record["import_s"] = import_seconds(system, environment(system, cache, self.chosen.threads))
        record["installed_mb"] = installed_mb(system)
        return record

    def limits(self) -> Record:
        from benchmarks.limits import measure_limits

        with self.quiet_machine():
            return measure_limits(self.chosen.threads)


def progress(record: Record) -> str:
    label = f"{record['workload']:18s} {record['system']:22s} round {record['round']}"
    if "error" in record:
        return f"{label}  {record['error'][:120]}"
    note = "  discarded" if record["discarded"] else ""
    times = f"{1e3 * record['median_s']:10.4f} ms  first call {record['first_call_s']:7.3f} s"
    return f"{label} {times}  others {record['foreign_cores']:.2f} cores{note}"


def machine() -> Record:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}


def chosen_systems(text: str, device: str) -> list[str]:
    """Those named, or all that are installed; the host's allocator makes no difference to steps on a GPU."""
    if text:
        return text.split(",")
    systems = [system for system in OURS + PEERS if device == "cpu" or "@malloc" not in system]
    return [system for system in systems if is_installed(system)]


def measure(chosen: argparse.Namespace) -> Record:
    if chosen.device == "cuda" and "emulate" in os.environ.get("AUTOJIT_CUDA", ""):
        raise SystemExit("--device cuda: the times of an emulated device say nothing; unset AUTOJIT_CUDA")
    systems = chosen_systems(chosen.systems, chosen.device)
    run: Record = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "device": chosen.device,
        "systems": systems,
        "threads": chosen.threads,
        "rounds": chosen.rounds,
        "workloads": [],
    }
    with tempfile.TemporaryDirectory(prefix="autojit-bench-", ignore_cleanup_errors=True) as folder:
        runner = Runner(chosen, Path(folder))
        if not chosen.no_limits and chosen.device == "cpu":
            run["limits"] = runner.limits()
        if not chosen.no_overheads and chosen.device == "cpu":
            run["overheads"] = {s: runner.overheads(s) for s in systems if "@" not in s}
        for record in runner.workloads([name for name in chosen.workloads.split(",") if name], systems):
            run["workloads"].append(record)
            write(run, chosen.out)
    write(run, chosen.out)
    return run


def write(run: Record, out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_suffix(".json").write_text(json.dumps(run, indent=1) + "\n")
        out.with_suffix(".md").write_text(report(run))


def main() -> None:
    chosen = options()
    run = json.loads(chosen.report.read_text()) if chosen.report else measure(chosen)
    print(report(run))


if __name__ == "__main__":
    main()
