"""Schedules that go up and down, and may steer the momentum against the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Literal, TypedDict

from autojit.optim.given import refuse
from autojit.optim.lr_base import LRScheduler, per_group, set_value
from autojit.optim.optimizer import Optimizer
from autojit.optim.param_group import ParamGroup


def _for_groups(optimizer: Optimizer, value: float | Sequence[float], name: str) -> list[float]:
    return per_group(optimizer, value, f"expected {{0}} values for {name}, got {{1}}")


def _uses_beta1(optimizer: Optimizer) -> bool:
    """Whether the momentum is betas[0]; ValueError when there is none."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group: ParamGroup, momentum: float, uses_beta1: bool) -> None:
    if uses_beta1:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _begin_momentum(optimizer: Optimizer, lows: list[float], highs: list[float], uses_beta1: bool) -> None:
    """Every group begins with its greatest momentum, and notes between which it goes."""
    for group, low, high in zip(optimizer.param_groups, lows, highs, strict=True):
        _set_momentum(group, high, uses_beta1)
        group["max_momentum"] = high
        group["base_momentum"] = low


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines to ``eta_min`` over T_0, T_0 T_mult, ... epochs, restarting at the top. Source: arXiv:1608.03983."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        refuse(T_0 <= 0 or not isinstance(T_0, int), "Expected positive integer T_0, but got {}", T_0)
        refuse(T_mult < 1 or not isinstance(T_mult, int), "Expected integer T_mult >= 1, but got {}", T_mult)
        if not isinstance(eta_min, float | int):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go on to the next epoch, or to ``epoch``, which may be fractional."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._place(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _go_to(self, epoch: int | None) -> None:
        self.step(epoch)

    def _place(self, epoch: float) -> None:
        """In which cycle an epoch is, and where."""
        refuse(epoch < 0, "Expected non-negative epoch, but got {}", epoch)
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**cycle


_HEIGHTS: dict[str, Callable[[float], float]] = {
    "triangular": lambda cycle: 1.0,
    "triangular2": lambda cycle: 1 / (2.0 ** (cycle - 1)),
}  # by mode


class CyclicLR(LRScheduler):
    """Triangles from ``base_lr`` to ``max_lr`` of constant, halving or decaying height. Source: arXiv:1506.01186."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        first_lrs = _for_groups(optimizer, base_lr, "base_lr")
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, first_lrs, strict=True):
                set_value(group, "lr", lr)
        self.max_lrs = _for_groups(optimizer, max_lr, "max_lr")
        step_size_down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + step_size_down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        self._choose_scale()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _uses_beta1(optimizer)
            self.base_momentums = _for_groups(optimizer, base_momentum, "base_momentum")
            self.max_momentums = _for_groups(optimizer, max_momentum, "max_momentum")
            if last_epoch == -1:
                _begin_momentum(optimizer, self.base_momentums, self.max_momentums, self.use_beta1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = first_lrs

    def _choose_scale(self) -> None:
        """What ``mode`` means, where no function was given."""
        if self._scale_fn_custom is None:
            self._scale_fn_ref = partial(pow, self.gamma) if self.mode == "exp_range" else _HEIGHTS[self.mode]
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"

    def scale_fn(self, x: float) -> float:
        """The height of the triangle at a cycle or iteration (``scale_mode``)."""
        return float((self._scale_fn_custom or self._scale_fn_ref)(x))

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height * scale, self.use_beta1)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """A function has no state to save: give the same one again; a callable object gives its attributes."""
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        given = state["_scale_fn_custom"]
        state["_scale_fn_custom"] = None if given is None or isinstance(given, FunctionType) else dict(vars(given))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if saved is not None:
            vars(self._scale_fn_custom).update(saved)
        self._choose_scale()


class _Phase(TypedDict):
    """One stretch of the one-cycle schedule: where it ends, and between which group options it interpolates."""

    end_step: float
    start_lr: str
    end_lr: str
    start_momentum: str
    end_momentum: str


class OneCycleLR(LRScheduler):
    """One rise to ``max_lr``, one fall far below the start, momentum the other way. Source: arXiv:1708.07120."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, _for_groups(optimizer, max_lr, "max_lr"), strict=True):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self.use_beta1 = _uses_beta1(optimizer)
            if last_epoch == -1:
                lows = _for_groups(optimizer, base_momentum, "base_momentum")
                highs = _for_groups(optimizer, max_momentum, "max_momentum")
                _begin_momentum(optimizer, lows, highs, self.use_beta1)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _annealing_cos(start: float, end: float, pct: float) -> float:
        return end + (start - end) / 2.0 * (math.cos(math.pi * pct) + 1)

    @staticmethod
    def _annealing_linear(start: float, end: float, pct: float) -> float:
        return (end - start) * pct + start

    def _between(self, start: float, end: float, share: float) -> float:
        kind: str | None = getattr(self, "_anneal_func_type", None)
        if kind is None:  # the state of an old version, which had the function itself
            return float(vars(self)["anneal_func"](start, end, share))
        return self._annealing_cos(start, end, share) if kind == "cos" else self._annealing_linear(start, end, share)

    def get_lr(self) -> list[Any]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        begin = 0.0
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        share = (step - begin) / (phase["end_step"] - begin)
        found = []
        for group in self.optimizer.param_groups:
            found.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                _set_momentum(group, momentum, self.use_beta1)
        return found


def _total_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is not None:
        if total_steps <= 0 or not isinstance(total_steps, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        return total_steps
    if epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    given: tuple[tuple[str, object], ...] = (("epochs", epochs), ("steps_per_epoch", steps_per_epoch))
    for name, value in given:
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return epochs * steps_per_epoch


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> list[_Phase]:
    rise_end, last = pct_start * total_steps - 1, float(total_steps - 1)
    rise = _phase(rise_end, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three_phase:
        return [rise, _phase(last, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    return [
        rise,
        _phase(2 * pct_start * total_steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        _phase(last, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]


def _phase(end_step: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str) -> _Phase:
    return {
        "end_step": end_step,
        "start_lr": start_lr,
        "end_lr": end_lr,
        "start_momentum": start_momentum,
        "end_momentum": end_momentum,
    }
