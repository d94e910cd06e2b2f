"""What the demo shows: a progress bar while it trains, the table of figures, the plot."""

from __future__ import annotations

from pathlib import Path

import autojit as aj
from autojit.cache import CacheStats
from autojit.demo.training import Run


class Progress:
    """A bar over the steps of a training, with its loss."""

    def __init__(self, label: str, total: int) -> None:
        self._bar = aj.utils.progress(desc=label, total=total)

    def __call__(self, done: int, loss: float) -> None:
        self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self._bar.update(done - self._bar.n)
        if done == self._bar.total:
            self._bar.close()


def duration(elapsed_s: float) -> str:
    """``0.0000341`` -> ``34.1 us``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if elapsed_s >= scale:
            return f"{elapsed_s / scale:.3g} {unit}"
    return f"{elapsed_s * 1e6:.3g} us"


def table(eager: Run, compiled: Run, cache: CacheStats, *, is_timed: bool = True) -> str:
    """The figures of the two runs side by side.

    Args:
        cache: counts what compiling asked of the object cache.
        is_timed: whether the times of the runs say something; an emulated device's do not.
    """
    ratio = f"   ({eager.median_step_s / compiled.median_step_s:.1f} times faster)" if is_timed else ""
    rows = [
        ("", "eager", "compiled"),
        ("held-out accuracy", f"{eager.accuracy:.1%}", f"{compiled.accuracy:.1%}"),
        ("last loss", f"{eager.losses[-1]:.5f}", f"{compiled.losses[-1]:.5f}"),
        ("first step", duration(eager.step_s[0]), duration(compiled.step_s[0])),
        (
            "time per step",
            duration(eager.median_step_s),
            f"{duration(compiled.median_step_s)}{ratio}",
        ),
    ]
    lines = [f"{name:<20}{left:<12}{right}".rstrip() for name, left, right in rows]
    stats = compiled.stats
    lines += [
        "",
        f"compile time        {duration(stats['capture_s'] + stats['compile_s'])}"
        f"   (capture {duration(stats['capture_s'])}, compile {duration(stats['compile_s'])})",
        f"captured            {stats['captures']} time(s) in {len(compiled.losses)} steps",
        f"kernels             {stats['kernels']}, one native call per step, {aj.get_num_threads()} thread(s)",
        f"object cache        {cache_state(cache)}",
        f"losses              differ by at most {loss_difference(eager, compiled):.1e} of their size in the first "
        f"{_compared(eager)} steps",
    ]
    return "\n".join(lines)


def cache_state(cache: CacheStats) -> str:
    """``cold`` when everything was compiled, ``warm`` when everything was found."""
    asked = cache.hits + cache.misses
    state = "warm" if cache.misses == 0 else "cold" if cache.hits == 0 else "partly warm"
    return f"{state}: {cache.hits} of {asked} objects found in {aj.cache.directory()}"


def _compared(run: Run) -> int:
    return min(20, len(run.losses))


def loss_difference(eager: Run, compiled: Run) -> float:
    """Greatest relative difference over the first 20 steps: rounding grows from step to step in any training."""
    pairs = list(zip(eager.losses, compiled.losses, strict=True))[: _compared(eager)]
    return max(abs(a - b) / max(abs(a), 1e-12) for a, b in pairs)


def write_plot(path: Path, eager: Run, compiled: Run) -> None:
    """Loss, how far eager and compiled are apart, and step times, as the file type of ``path``'s suffix.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    losses, apart, times = figure.subplots(1, 3)
    steps = range(1, len(compiled.losses) + 1)
    losses.plot(steps, compiled.losses, linewidth=1)
    differences = [abs(a - b) / max(abs(a), 1e-12) for a, b in zip(eager.losses, compiled.losses, strict=True)]
    apart.plot(steps, [max(d, 1e-9) for d in differences], ".", markersize=3)  # 1e-9 stands for less, and for none
    for run in (eager, compiled):
        times.plot(steps, [s * 1e6 for s in run.step_s], ".", label=run.mode, markersize=3)
    losses.set(xlabel="step", ylabel="loss (nats)", yscale="log", title="training, compiled")
    apart.set(xlabel="step", ylabel="relative difference", yscale="log", title="from the same training, eager")
    times.set(xlabel="step", ylabel="time per step (µs)", yscale="log", title="the first compiled step compiles")
    times.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
