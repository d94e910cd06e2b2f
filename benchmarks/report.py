"""Markdown tables from the records of a run: medians, ratios to the best peer, start-up, memory, overheads, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks.systems import OURS, REFERENCE
from benchmarks.timing import median
from benchmarks.workloads import WORKLOADS

Record: TypeAlias = dict[str, Any]
SIGNIFICANT = 3


def report(run: Record) -> str:
    """All tables of one run, as written by ``benchmarks.run``."""
    records: list[Record] = run["workloads"]
    systems = [name for name in run["systems"] if any(r["system"] == name for r in records)]
    names = [name for name in WORKLOADS if any(r["workload"] == name for r in records)]
    limits: Record = run.get("limits", {})
    parts = [heading(run)]
    if names:
        parts += [
            section("Milliseconds per step (median)", step_rows(records, names, systems, limits)),
            section("Process start to first result, s: cold / warm", start_rows(records, names, systems)),
            section("First call (trace, compile, run), s: cold / warm", first_call_rows(records, names, systems)),
            section("Peak memory, MB: process / over import", memory_rows(records, names, systems)),
            section(
                f"Largest relative difference to {REFERENCE} after 20 steps", agreement_rows(records, names, systems)
            ),
        ]
    if run.get("overheads"):
        parts.append(section("Overheads", overhead_rows(run["overheads"])))
    if limits:
        parts.append(section("Limits of the machine", [["what", "value"], *limit_rows(limits)]))
    failures = [f"- {r['workload']}, {r['system']}: {r['error']}" for r in records if "error" in r]
    failures += [f"- overheads, {s}: {r['error']}" for s, r in run.get("overheads", {}).items() if "error" in r]
    return "\n".join(parts + (["", "### Failed", "", *failures] if failures else [])) + "\n"


def heading(run: Record) -> str:
    machine = run["machine"]
    device = "tensors on cuda; " if run.get("device") == "cuda" else ""
    return (
        f"## Benchmarks of {run['date']}\n\n{device}{machine['cpu']}, {run['threads']} threads of "
        f"{machine['cores']} cores, Python {machine['python']}; every system in turn in fresh processes, "
        f"{run['rounds']} rounds, medians of the undisturbed ones."
    )


def section(title: str, rows: list[list[str]]) -> str:
    head, *body = rows
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body]]
    return f"\n### {title}\n\n" + "\n".join(lines)


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 10**SIGNIFICANT else f"{value:.{SIGNIFICANT}g}"


# ------------------------------------------------------------------------------------------------------- one quantity


def measured(records: list[Record], workload: str, system: str) -> list[Record]:
    return [
        r
        for r in records
        if r["workload"] == workload and r["system"] == system and "median_s" in r and not r["discarded"]
    ]


def steady_ms(records: list[Record], workload: str, system: str) -> float | None:
    """Median over the warm rounds, all if there is no other: helpers of a cold compile may still be running."""
    found = measured(records, workload, system)
    warm = [r for r in found if r["round"] > 0] or found
    return 1e3 * median([r["median_s"] for r in warm]) if warm else None


def cold_and_warm(found: list[Record], quantity: Callable[[Record], float]) -> str:
    cold = [quantity(r) for r in found if r["round"] == 0]
    warm = [quantity(r) for r in found if r["round"] > 0]
    return " / ".join(number(median(values)) if values else "-" for values in (cold, warm)) if found else ""


def bound_ms(name: str, limits: Record) -> tuple[float, str] | None:
    """Least milliseconds of a step and the limit that sets it; none where latency alone counts."""
    work = WORKLOADS[name].work()
    if not limits or not (work.flops or work.bytes):
        return None
    arithmetic_ms = 1e3 * work.flops / (limits[f"{work.dtype}_gflops"] * 1e9)
    memory_ms = 1e3 * work.bytes / (limits["memcpy_gbs"] * 1e9)
    return max((arithmetic_ms, "arithmetic"), (memory_ms, "memory"))


# ------------------------------------------------------------------------------------------------------------- tables


def step_rows(records: list[Record], names: list[str], systems: list[str], limits: Record) -> list[list[str]]:
    rows = [["workload", *systems, "best peer", "autojit is faster by", "bound", "reached"]]
    for name in names:
        times = {system: steady_ms(records, name, system) for system in systems}
        peers = {system: ms for system, ms in times.items() if system not in OURS and ms is not None}
        best = min(peers, key=lambda system: peers[system]) if peers else ""
        ours = times.get("autojit")
        bound = bound_ms(name, limits)
        rows.append(
            [
                name,
                *(number(times[system]) for system in systems),
                best,
                f"{peers[best] / ours:.2f}x" if best and ours else "",
                f"{number(bound[0])} ({bound[1]})" if bound else "",
                f"{100 * bound[0] / ours:.0f} %" if bound and ours else "",
            ]
        )
    return rows


def table(names: list[str], systems: list[str], cell: Callable[[str, str], str]) -> list[list[str]]:
    return [["workload", *systems], *([name, *(cell(name, system) for system in systems)] for name in names)]


def start_rows(records: list[Record], names: list[str], systems: list[str]) -> list[list[str]]:
    return table(
        names, systems, lambda n, s: cold_and_warm(measured(records, n, s), lambda r: float(r["to_first_step_s"]))
    )


def first_call_rows(records: list[Record], names: list[str], systems: list[str]) -> list[list[str]]:
    return table(
        names, systems, lambda n, s: cold_and_warm(measured(records, n, s), lambda r: float(r["first_call_s"]))
    )


def memory_rows(records: list[Record], names: list[str], systems: list[str]) -> list[list[str]]:
    def cell(name: str, system: str) -> str:
        found = measured(records, name, system)
        peaks = ([r[key] for r in found] for key in ("peak_mb", "peak_over_import_mb"))
        return " / ".join(number(median(values)) for values in peaks) if found else ""

    return table(names, systems, cell)


def agreement_rows(records: list[Record], names: list[str], systems: list[str]) -> list[list[str]]:
    def cell(name: str, system: str) -> str:
        found, reference = measured(records, name, system), measured(records, name, REFERENCE)
        if not found or not reference:
            return ""
        wanted: dict[str, float] = reference[-1]["last_check"]
        got: dict[str, float] = found[-1]["last_check"]
        return f"{max(abs(got[key] - value) / max(abs(value), 1e-12) for key, value in wanted.items()):.1e}"

    return table(names, systems, cell)


def overhead_rows(overheads: dict[str, Record]) -> list[list[str]]:
    keys = sorted({key for record in overheads.values() for key in record} - {"error"})
    return [["system", *keys], *([s, *(number(r.get(key)) for key in keys)] for s, r in overheads.items())]


def limit_rows(limits: Record) -> list[list[str]]:
    return [[key, number(value)] for key, value in limits.items()]
