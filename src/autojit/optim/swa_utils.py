"""Averages of weights along training: of all equally (SWA) or fading exponentially (EMA), and the schedule for it."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from autojit.core.errors import ArgumentError
from autojit.functions.comparison import where
from autojit.functions.factories import tensor
from autojit.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Module
from autojit.optim.lr_base import LRScheduler, value_of
from autojit.optim.optimizer import Optimizer
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, state

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

Average = Callable[[Tensor, Tensor, Tensor | int], Tensor]
AverageOfAll = Callable[[list[Tensor], list[Tensor], Any], None]


_ours: weakref.WeakSet[Any] = weakref.WeakSet()
"""Averages that this module has made: they change nothing but what they are given, and may be asked in vain."""
_Known = TypeVar("_Known")


def _known(average: _Known) -> _Known:
    _ours.add(average)
    return average


def get_swa_avg_fn() -> Average:
    """The mean of all: a function of (average, new value, number averaged so far)."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return _known(swa_update)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """``decay`` of the average and the rest of the new value.

    Raises:
        ValueError: ``decay`` is not in [0, 1].
    """
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return _known(ema_update)


def get_swa_multi_avg_fn() -> AverageOfAll:
    """``get_swa_avg_fn`` for lists, in place."""
    return _in_place(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageOfAll:
    """``get_ema_avg_fn`` for lists, in place."""
    return _in_place(get_ema_avg_fn(decay))


def _in_place(average: Average) -> AverageOfAll:
    def update(averaged_param_list: list[Tensor], current_param_list: list[Tensor], num_averaged: Tensor | int) -> None:
        with grad_mode(False):
            for averaged, current in zip(averaged_param_list, current_param_list, strict=True):
                averaged.copy_(average(averaged, current, num_averaged))

    return _known(update) if average in _ours else update


class AveragedModel(Module):
    """A copy of a module whose parameters are the averages of those given to ``update_parameters``.

    Args:
        model: the module; it is copied, not changed.
        device: where the copy goes.
        avg_fn: the rule, as from ``get_ema_avg_fn``; by default the mean of all.
        multi_avg_fn: the rule for lists, instead of ``avg_fn``.
        use_buffers: average buffers too; otherwise they are copied.

    Example:
        >>> import autojit as aj
        >>> model = aj.nn.Linear(1, 1, bias=False)
        >>> averaged = aj.optim.swa_utils.AveragedModel(model)
        >>> for value in (1.0, 2.0):
        ...     _ = aj.nn.init.constant_(model.weight, value)
        ...     averaged.update_parameters(model)
        >>> averaged.module.weight.item()
        1.5
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: AverageOfAll | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged module computes."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the module's present parameters into the averages."""
        averages, values = list(_averaged(self.module, self.use_buffers)), list(_averaged(model, self.use_buffers))
        update = self.multi_avg_fn or _in_place(self.avg_fn or get_swa_avg_fn())
        with grad_mode(False):
            is_first = self.n_averaged.eq(0)
            # the question would split a step; the averages known here do nothing else, so it chooses results
            is_chosen = state.trace is not None and update in _ours
            if not is_chosen and is_first.item():
                for average, value in zip(averages, values, strict=True):
                    average.copy_(value)
            else:
                update([p.detach() for p in averages], [p.detach() for p in values], self.n_averaged)
            for average, value in zip(averages, values, strict=True) if is_chosen else ():
                average.copy_(where(is_first, value, average))
            if not self.use_buffers:
                for kept, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                    kept.copy_(buffer)
            self.n_averaged += 1


def _averaged(model: Module, with_buffers: bool) -> Iterator[Tensor]:
    yield from model.parameters()
    if with_buffers:
        yield from model.buffers()


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of batch normalisations by a pass over the data.

    Args:
        loader: batches; of a list or tuple the first entry is the model's input.
        model: called with each batch, in training mode.
        device: where inputs are moved first.
    """
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, BatchNorm1d | BatchNorm2d | BatchNorm3d)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for layer in momenta:
        layer.reset_running_stats()
        layer.momentum = None
    with grad_mode(False):
        for batch in loader:
            inputs = batch[0] if isinstance(batch, list | tuple) else batch
            model(inputs if device is None else inputs.to(device))
    for layer, momentum in momenta.items():
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal every group's learning rate to ``swa_lr`` in ``anneal_epochs`` steps, then keep it.

    Args:
        optimizer: whose rates are set.
        swa_lr: the final rate, or one per group.
        anneal_epochs: how many steps; 0 sets it at once.
        anneal_strategy: "cos" or "linear".
        last_epoch: the step before the first one.

    Raises:
        ValueError: another strategy, or a negative number of steps.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float] | tuple[float, ...],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        given = swa_lr if isinstance(swa_lr, list | tuple) else [swa_lr] * len(optimizer.param_groups)
        rates = [value_of(one) for one in given]
        if len(rates) != len(optimizer.param_groups):
            raise ArgumentError(
                f"swa_lr must have the same length as optimizer.param_groups: swa_lr has {len(rates)}, "
                f"optimizer.param_groups has {len(optimizer.param_groups)}"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if anneal_epochs < 0 or anneal_epochs != int(anneal_epochs):
            raise ArgumentError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        super().__init__(optimizer, last_epoch)

    def _weight(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """The rates of this step."""
        step = self.last_epoch
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._weight(max(0, step - 1)), self._weight(max(0, step))
        rates = []
        for group in self.optimizer.param_groups:
            first = group["lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + first * (1 - now))
        return rates
