"""Schedules made of others, and the one that watches a metric."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any, Literal, SupportsFloat

from autojit.core.user_warnings import warn
from autojit.optim.given import refuse
from autojit.optim.lr_base import EPOCH_DEPRECATION_WARNING, LRScheduler, per_group, set_value, value_of
from autojit.optim.optimizer import Optimizer


def _check_schedulers(name: str, schedulers: Sequence[Any], optimizer: Optimizer) -> None:
    refuse(not schedulers, "{} expects at least one scheduler to chain, but got no scheduler.", name)
    for place, schedule in enumerate(schedulers):
        if not hasattr(schedule, "optimizer"):
            raise TypeError(f"{name} at index {place} should have `optimizer` as its attribute.")
        if isinstance(schedule, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                "specified when calling `step`."
            )
        if schedule.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler at index {place} "
                "with a different one."
            )


class _Composite(LRScheduler):
    """A schedule that keeps others in ``_schedulers`` and saves their states with its own."""

    _schedulers: list[Any]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["_schedulers"] = [schedule.state_dict() for schedule in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        for schedule, saved in zip(self._schedulers, state.pop("_schedulers"), strict=True):
            schedule.load_state_dict(saved)
        self.__dict__.update(state)


class SequentialLR(_Composite):
    """One schedule after the other, changing at the milestones."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        _check_schedulers(type(self).__name__, schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = list(schedulers)
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # the schedules took their first step when they were made: undo all of them, then redo the first's
        for group in optimizer.param_groups:
            set_value(group, "lr", group["initial_lr"])
        _take_back(self)
        first = self._schedulers[bisect.bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Let the schedule in charge take its next step."""
        self.last_epoch += 1
        place = bisect.bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[place]
        if place > 0 and self._milestones[place - 1] == self.last_epoch:
            schedule._go_to(0)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


def _take_back(schedule: LRScheduler) -> None:
    """Undo the step that a schedule, or each of which it is made, took when it was made."""
    if isinstance(schedule, _Composite):
        for part in schedule._schedulers:
            _take_back(part)
    else:
        schedule.last_epoch -= 1


class ChainedScheduler(_Composite):
    """All schedules at once: their factors multiply."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no scheduler."
            )
        self.optimizer = optimizer or schedulers[0].optimizer
        _check_schedulers(type(self).__name__, schedulers, self.optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = self._current()

    def step(self, epoch: int | None = None) -> None:
        """Let every schedule take its next step."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._current()


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for ``patience`` epochs; call ``step(metric)``."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        refuse(factor >= 1.0, "Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        refuse(mode not in ("min", "max"), "mode {} is unknown!", mode)
        refuse(threshold_mode not in ("rel", "abs"), "threshold mode {} is unknown!", threshold_mode)
        self.optimizer = optimizer
        self.factor = factor
        self.default_min_lr: float | None = None if isinstance(min_lr, list | tuple) else min_lr
        self.min_lrs = per_group(optimizer, min_lr, "expected {0} min_lrs, got {1}")
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.last_epoch = 0
        self._last_lr = self._current()
        self._reset()

    def _reset(self) -> None:
        """Forget the best metric and all counts."""
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction is so recent that bad epochs do not count."""
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """Take notice of the metric of an epoch."""
        current = float(metrics)
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING, UserWarning)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current()

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due to a new param group "
                    "being added to the optimizer. Please modify the `min_lrs` field to match the length of the "
                    "`optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            old = value_of(group["lr"])
            new = max(old * self.factor, lowest)
            if old - new > self.eps:
                set_value(group, "lr", new)

    def _is_better(self, a: float, best: float) -> bool:
        if self.mode == "min":
            margin = best * (1.0 - self.threshold) if self.threshold_mode == "rel" else best - self.threshold
            return a < margin
        margin = best * (self.threshold + 1.0) if self.threshold_mode == "rel" else best + self.threshold
        return a > margin
