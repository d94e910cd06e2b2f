"""Learning-rate schedules: each sets ``group["lr"]`` of an optimiser once per epoch or batch.

The value of an epoch is a function of the schedule's own options and the previous one, as in torch (chainable form).
Schedules that steer other schedules or the momentum are in ``lr_cycles.py`` and ``lr_composite.py``.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, TypeVar

from autojit.core.user_warnings import warn
from autojit.optim.given import refuse
from autojit.optim.lr_tables import table_of
from autojit.optim.optimizer import Optimizer
from autojit.optim.param_group import ParamGroup
from autojit.tensor import Tensor
from autojit.tensor.state import state

T = TypeVar("T")
_SEE = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` is deprecated: call `scheduler.step()` without it. Where the schedule "
    "has a closed form, a given epoch uses that instead of the chainable form."
)
LrFunction = Callable[[int], float]


def set_value(group: ParamGroup, name: str, value: Any) -> None:
    """Set a hyper-parameter; one that is a Tensor is filled in place."""
    old = group[name]
    if isinstance(old, Tensor):
        old.fill_(float(value))
    else:
        group[name] = float(value) if isinstance(value, Tensor) else value


def value_of(x: Any) -> Any:
    """A copy of a hyper-parameter that later changes do not reach."""
    return float(x) if isinstance(x, Tensor) else x


def per_group(optimizer: Optimizer, value: T | Sequence[T], refusal: str) -> list[T]:
    """One value for every group, or a list of one per group; else ValueError, in which {0} should be and {1} are."""
    count = len(optimizer.param_groups)
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ValueError(refusal.format(count, len(values)))
    return [value_of(one) for one in values]


def _after_captured_steps(step: Callable[..., None]) -> Callable[..., None]:
    """A schedule's step: in a captured function, one that is made after every run of what is compiled."""

    @functools.wraps(step)
    def stepping(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        trace = state.trace
        if trace is None or self.optimizer.is_made_in(trace):
            step(self, *args, **kwargs)
        elif not (args or kwargs) and (table := table_of(self)) is not None:
            table.step()
        elif not trace.change_later(
            (self, self.optimizer, *self.optimizer.param_groups), stepping, self, *args, **kwargs
        ):
            trace.cannot("the step makes a schedule's step where it may be made often")

    vars(stepping)["is_made_later"] = True
    return stepping


class LRScheduler:
    """Base of the schedules; a subclass defines ``get_lr`` (one value per group at ``self.last_epoch``).

    Example:
        >>> import autojit as aj
        >>> optimizer = aj.optim.SGD([aj.nn.Parameter(aj.zeros(1))], lr=1.0)
        >>> schedule = aj.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    # what belongs to this run of the optimiser, and so is no state to save
    __slots__ = ("__dict__", "__weakref__", "_optimizer_calls", "_optimizer_step")
    _optimizer_calls: int
    _optimizer_step: object

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if state.trace is not None and not optimizer.is_made_in(state.trace):
            state.trace.cannot("the step makes a schedule for an optimiser that exists outside it")
        self.optimizer = optimizer
        for place, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", value_of(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{place}] when resuming scheduler with "
                    f"last_epoch >= 0."
                )
        self.base_lrs: list[Any] = [value_of(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._get_lr_called_within_step = False
        self._is_initial = True
        self._last_lr: list[Any] = []
        self._initial_step()

    def _initial_step(self) -> None:
        self._optimizer_calls = self.optimizer._step_calls
        self._optimizer_step = vars(self.optimizer).get("step")
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser; functions are kept only when they are objects with their own state."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rates set last, one per group."""
        return self._last_lr if state.trace is None else self._current()

    def get_lr(self) -> list[Any]:
        """The learning rates of ``self.last_epoch``; only ``step`` calls it."""
        raise NotImplementedError

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _after_captured_steps(cls.__dict__["step"])  # type: ignore[method-assign]

    @_after_captured_steps
    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch (or, where a closed form exists, to the given one) and set the learning rates."""
        self._warn_about_order()
        self._step_count += 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING, UserWarning)
        self._go_to(epoch)

    def _go_to(self, epoch: int | None) -> None:
        """Set what the next epoch, or the given one, asks for."""
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
                values = closed_form()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)

    def _set(self, values: Iterable[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            set_value(group, "lr", lr)
        self._last_lr = self._current()

    def _warn_about_order(self) -> None:
        if self._step_count != 1 or self._is_initial or self.optimizer._is_captured:
            return
        if vars(self.optimizer).get("step") is not self._optimizer_step:
            warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization, so it "
                f"cannot be told whether it is called before `lr_scheduler.step()`, as it should. {_SEE}",
                UserWarning,
            )
        elif self.optimizer._step_calls == self._optimizer_calls:
            warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call them in the "
                "opposite order: `optimizer.step()` before `lr_scheduler.step()`; otherwise the first value of the "
                f"schedule is skipped. {_SEE}",
                UserWarning,
            )

    def _current(self) -> list[Any]:
        return [value_of(group["lr"]) for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[Any]:
        return [lr * factor for lr in self._current()]


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch (one function, or one per group)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: LrFunction | list[LrFunction], last_epoch: int = -1) -> None:
        self.lr_lambdas = per_group(optimizer, lr_lambda, "Expected {0} lr_lambdas, but got {1}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Functions have no state to save; callable objects give their attributes."""
        saved = [None if isinstance(f, FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        for function, saved in zip(self.lr_lambdas, state.pop("lr_lambdas"), strict=True):
            if saved is not None:
                function.__dict__.update(saved)
        self.__dict__.update(state)

    def get_lr(self) -> list[Any]:
        return [base * factor(self.last_epoch) for factor, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(LambdaLR):
    """The rate times a function of the epoch, epoch after epoch."""

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._current()
        factors = (factor(self.last_epoch) for factor in self.lr_lambdas)
        return [lr * factor for lr, factor in zip(self._current(), factors, strict=True)]


class StepLR(LRScheduler):
    """Times ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        is_due = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return self._scaled(self.gamma) if is_due else self._current()

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times ``gamma`` at every milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        times = self.milestones.get(self.last_epoch, 0)
        return self._scaled(self.gamma**times) if times else self._current()

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect.bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The initial rate times ``factor`` for ``total_iters`` epochs, then the initial rate."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        refuse(factor > 1.0 or factor < 0, "Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return self._scaled(1.0 / self.factor) if self.last_epoch == self.total_iters else self._current()

    def _get_closed_form_lr(self) -> list[Any]:
        is_over = self.last_epoch >= self.total_iters
        return [base * (self.factor + is_over * (1 - self.factor)) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The initial rate times a factor that goes linearly from ``start_factor`` to ``end_factor``."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        refuse(end_factor > 1.0 or end_factor < 0, "Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        span = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * span
        return self._scaled(1.0 + span / before)

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * share) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        return self._current() if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - epoch / total_iters)^power."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        left = 1.0 - self.last_epoch / self.total_iters
        left_before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((left / left_before) ** self.power)

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` over ``T_max`` epochs, and back. Source: arXiv:1608.03983."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._current()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - self.eta_min) * rise for base, lr in zip(self.base_lrs, self._current(), strict=True)]
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [now / before * (lr - self.eta_min) + self.eta_min for lr in self._current()]

    def _get_closed_form_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]
