"""Losses scaled up before ``backward`` so that gradients of half precision do not vanish, and down before the step.

The factor, its counter, the settings and what was found in the gradients are tensors of the scaler's device, so a
compiled function that scales, steps and updates carries them on as any other state. Nobody waits to hear whether the
gradients are finite: the optimizer steps, and each tensor that it has changed is chosen between new and old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from autojit.core.device import device as device_of
from autojit.core.device import is_available
from autojit.core.dtypes import bool_, float16, float32, float64, int32
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.top_level import top_level
from autojit.core.user_warnings import warn
from autojit.functions.comparison import where
from autojit.functions.factories import full
from autojit.functions.shape import stack
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, is_tracing, outside_trace


class _SettingError(ArgumentError, AssertionError):
    """A factor that does not grow or shrink."""


class _TurnError(UsageError, AssertionError):
    """A method that is called before what it builds on."""


@top_level
class GradScaler:
    """Scales losses by a factor that grows while gradients stay finite and shrinks when they do not.

    Inside a compiled function an optimizer of autojit's steps in any case, and what it did counts for nothing where
    gradients are not finite. One with an algorithm of its own, or one with sparse gradients, splits the function once.

    Args:
        device: "cpu" or "cuda"; with one that is not there the scaler is off, with a warning.
        init_scale: the factor to begin with.
        growth_factor: of the factor after ``growth_interval`` steps with finite gradients.
        backoff_factor: of the factor after gradients that are not.
        enabled: False makes every method pass its argument through.

    Raises:
        ValueError: a growth factor up to 1, or a backoff factor from 1.

    Example:
        >>> import autojit as aj
        >>> w = aj.ones(1, requires_grad=True)
        >>> optimizer = aj.optim.SGD([w], lr=0.5)
        >>> scaler = aj.amp.GradScaler("cpu")
        >>> scaler.scale((w * w).sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> w.item()
        0.0
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and not is_available(device_of(device).type):
            warn(f"GradScaler is enabled, but {device} is not available. Disabling.")
            self._enabled = False
        if not growth_factor > 1.0:
            raise _SettingError("The growth factor must be > 1.0.", facts={"growth_factor": growth_factor})
        if not backoff_factor < 1.0:
            raise _SettingError("The backoff factor must be < 1.0.", facts={"backoff_factor": backoff_factor})
        home = device if self._enabled else "cpu"
        self._scale = full((), float(init_scale), dtype=float32, device=home)
        self._growth_tracker = full((), 0, dtype=int32, device=home)
        self._growth_factor = full((), growth_factor, dtype=float64, device=home)
        self._backoff_factor = full((), backoff_factor, dtype=float64, device=home)
        self._growth_interval = full((), growth_interval, dtype=int32, device=home)
        self._found_inf: dict[int, Tensor] = {}  # by optimizer: whether the update must shrink the factor
        self._unscaled: set[int] = set()  # since the last update
        self._stepped: set[int] = set()
        self._was_traced = False  # then compiled steps look at gradients without this object's knowledge

    def scale(self, outputs: Any) -> Any:
        """A tensor, or those in a list or tuple, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, list | tuple):
            return type(outputs)([self.scale(output) for output in outputs])
        if isinstance(outputs, Iterable) and not isinstance(outputs, str):
            return map(self.scale, outputs)
        raise ArgumentError("outputs must be a Tensor or an iterable of Tensors", facts={"outputs": outputs})

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the factor, once between two updates.

        Raises:
            RuntimeError: it was done already, or the step was taken.
            ValueError: gradients are float16, where dividing may lose them.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._stepped:
            raise UsageError("unscale_() is being called after step().")
        if id(optimizer) in self._unscaled:
            raise UsageError("unscale_() has already been called on this optimizer since the last update().")
        self._unscaled.add(id(optimizer))
        self._was_traced = self._was_traced or is_tracing()
        with grad_mode(False):
            inverse = self._scale.to(float64).reciprocal().to(float32)
            gradients = list(_gradients(optimizer))
            for gradient in gradients:
                gradient.mul_(inverse.to(gradient.device))
            if gradients:
                home = self._scale.device
                all_finite = stack([gradient.isfinite().all().to(home) for gradient in gradients]).all()
                self._found(optimizer).copy_(all_finite.logical_not())

    def _found(self, optimizer: Any) -> Tensor:
        """Where it is noted whether an optimizer's gradients were not finite; it outlives the step that asks first."""
        if id(optimizer) not in self._found_inf:
            with outside_trace():
                self._found_inf[id(optimizer)] = full((), False, dtype=bool_, device=self._scale.device)
        return self._found_inf[id(optimizer)]

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()`` with gradients unscaled, unless one of them is infinite or NaN.

        Raises:
            RuntimeError: the step was taken already since the last update, or a closure is given.
            AssertionError: no parameter of the optimizer has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise UsageError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) in self._stepped:
            raise UsageError("step() has already been called since the last update().")
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        if id(optimizer) not in self._found_inf:
            raise _TurnError("No inf checks were recorded for this optimizer.", fix="call backward() before")
        result = self._step_if_finite(optimizer, args, kwargs)
        self._stepped.add(id(optimizer))
        return result

    def _step_if_finite(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = self._found_inf[id(optimizer)]
        if is_tracing() and getattr(optimizer, "can_be_skipped", False):
            return optimizer.step_unless(found, *args, **kwargs)
        return None if found else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Let the factor grow or shrink by what the steps found, or be ``new_scale``.

        Raises:
            AssertionError: no gradients were looked at since the last update.
        """
        if not self._enabled:
            return
        with grad_mode(False):
            if new_scale is None:
                self._follow_gradients()
            elif isinstance(new_scale, Tensor):
                self._scale.copy_(new_scale)
            else:
                self._scale.fill_(float(new_scale))
            for found in self._found_inf.values():
                found.zero_()
        self._unscaled.clear()
        self._stepped.clear()

    def _follow_gradients(self) -> None:
        if not self._found_inf or not (self._unscaled or self._was_traced):
            raise _TurnError("No inf checks were recorded prior to update.", fix="call step(optimizer) before")
        shrinks = stack(list(self._found_inf.values())).any()
        larger = self._scale * self._growth_factor
        count = self._growth_tracker + 1
        is_due = count.eq(self._growth_interval)
        grown = where(is_due.logical_and(larger.isfinite()), larger, self._scale)
        self._scale.copy_(where(shrinks, self._scale * self._backoff_factor, grown))
        self._growth_tracker.copy_(count.masked_fill(shrinks.logical_or(is_due), 0))

    def get_scale(self) -> float:
        """The factor; 1 while the scaler is off."""
        return float(self._scale.item()) if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether losses are scaled at all."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """By what the factor grows."""
        return float(self._growth_factor.item())

    def set_growth_factor(self, new_factor: float) -> None:
        """By what the factor shall grow."""
        self._growth_factor.fill_(new_factor)

    def get_backoff_factor(self) -> float:
        """By what the factor shrinks."""
        return float(self._backoff_factor.item())

    def set_backoff_factor(self, new_factor: float) -> None:
        """By what the factor shall shrink."""
        self._backoff_factor.fill_(new_factor)

    def get_growth_interval(self) -> int:
        """After how many steps the factor grows."""
        return int(self._growth_interval.item())

    def set_growth_interval(self, new_interval: int) -> None:
        """After how many steps the factor shall grow."""
        self._growth_interval.fill_(new_interval)

    def state_dict(self) -> dict[str, Any]:
        """What continues the scaler; empty while it is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self.get_growth_factor(),
            "backoff_factor": self.get_backoff_factor(),
            "growth_interval": self.get_growth_interval(),
            "_growth_tracker": int(self._growth_tracker.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            RuntimeError: the state is empty, as of a scaler that is off.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise UsageError("The source state dict is empty, possibly as it was saved from a disabled GradScaler.")
        self._scale.fill_(state_dict["scale"])
        self._growth_tracker.fill_(state_dict["_growth_tracker"])
        self._growth_factor.fill_(state_dict["growth_factor"])
        self._backoff_factor.fill_(state_dict["backoff_factor"])
        self._growth_interval.fill_(state_dict["growth_interval"])


def _gradients(optimizer: Any) -> Iterator[Tensor]:
    """The gradients of an optimizer's parameters; of a sparse one its values."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.dtype == float16:
                raise ArgumentError("Attempting to unscale FP16 gradients.", fix="keep parameters in float32")
            yield gradient._values() if gradient.is_sparse else gradient
