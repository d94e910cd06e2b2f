"""torch's module of this name, which libraries import: operations are counted by the profiler here."""

from __future__ import annotations

from autojit.core.absent_class import WithoutInstances


class FlopCounterMode(WithoutInstances):
    """torch's counter of operations by module; the profiler counts them by op."""

    what = "counters of operations by module"
    instead = "autograd.profiler.profile(with_flops=True); in pytorch-lightning: Trainer(enable_model_summary=False)"


__all__ = ["FlopCounterMode"]
