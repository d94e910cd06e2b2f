"""Losses scaled up before ``backward`` so that gradients of half precision do not vanish, and down before the step."""

from __future__ import annotations

import warnings
from typing import Any

from autojit.core.device import device as device_of
from autojit.core.errors import UsageError
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode


class GradScaler:
    """Scales losses by a factor that grows while gradients stay finite and shrinks when they do not.

    Call it outside of compiled functions: whether a step is taken depends on the gradients' values.

    Args:
        device: "cpu"; another one is accepted with a warning, and the scaler is off.
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
        if enabled and device_of(device).type != "cpu":
            warnings.warn(f"GradScaler is enabled, but {device} is not available. Disabling.", stacklevel=2)
            self._enabled = False
        if not growth_factor > 1.0:
            raise ValueError("The growth factor must be > 1.0.")
        if not backoff_factor < 1.0:
            raise ValueError("The backoff factor must be < 1.0.")
        self._scale, self._growth_tracker = float(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._found_inf: dict[int, bool] = {}  # by optimizer, since the last update
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """A tensor, or those in a list or tuple, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, list | tuple):
            return type(outputs)([self.scale(output) for output in outputs])
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the factor, once between two updates.

        Raises:
            RuntimeError: it was done already, or the step was taken.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._stepped:
            raise UsageError("unscale_() is being called after step().")
        if id(optimizer) in self._found_inf:
            raise UsageError("unscale_() has already been called on this optimizer since the last update().")
        finite = True
        with grad_mode(False):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    parameter.grad.mul_(1.0 / self._scale)
                    finite = finite and bool(parameter.grad.isfinite().all())
        self._found_inf[id(optimizer)] = not finite

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()`` with gradients unscaled, unless one of them is infinite or NaN.

        Raises:
            RuntimeError: the step was taken already since the last update, or a closure is given.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise UsageError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) in self._stepped:
            raise UsageError("step() has already been called since the last update().")
        if id(optimizer) not in self._found_inf:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return None if self._found_inf[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Let the factor grow or shrink by what the steps found, or be ``new_scale``.

        Raises:
            RuntimeError: no gradients were looked at since the last update.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._found_inf:
            raise UsageError("No inf checks were recorded prior to update.", fix="call step(optimizer) before")
        elif any(self._found_inf.values()):
            self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale, self._growth_tracker = self._scale * self._growth_factor, 0
        self._found_inf.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The factor; 1 while the scaler is off."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether losses are scaled at all."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """By what the factor grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """By what the factor shall grow."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the factor shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """By what the factor shall shrink."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """After how many steps the factor shall grow."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """What continues the scaler; empty while it is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
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
        self._scale, self._growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
