"""The block in which products compute in a narrower dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

from autojit.core.device import device, is_available
from autojit.core.dtypes import DType, bfloat16, float16
from autojit.core.epoch import note_switch
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.top_level import top_level
from autojit.core.user_warnings import warn
from autojit.core.wrapping import wraps
from autojit.dispatch.declared import declared
from autojit.functions.autocast import Mode, converted
from autojit.tensor.state import Precision, detour_of_modes, state

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_NARROW = (bfloat16, float16)
_AVAILABLE = frozenset({"cpu", "cuda"})


def is_autocast_available(device_type: str) -> bool:
    """Whether a kind of device is one that ``autocast`` takes.

    Example:
        >>> import autojit as aj
        >>> aj.amp.is_autocast_available("cpu")
        True
    """
    return device(device_type).type in _AVAILABLE


@top_level
class autocast:
    """Inside, products and convolutions of float32 compute in ``dtype``, losses and decompositions in float32.

    Other functions compute in the dtype of their operands, promoted where these differ. float64 is never cast. Also a
    decorator. Which functions are cast is torch's list for the CPU.

    Args:
        device_type: "cpu", or "cuda", which is off, with a warning, where there is no such device. Tensors on other
            kinds of device are left alone.
        dtype: bfloat16 (the default on the CPU) or float16 (on CUDA).
        enabled: False ends an outer block's effect.
        cache_enabled: accepted; casts are not kept, and a compiled step shares equal ones.

    Raises:
        ValueError: ``device_type`` is not a string.
        RuntimeError: it is not a kind of device.

    Example:
        >>> import autojit as aj
        >>> with aj.autocast("cpu"):
        ...     y = aj.ones(2, 2) @ aj.ones(2, 2)
        >>> y.dtype
        autojit.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ArgumentError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device(device_type).type
        if self.device not in _AVAILABLE:
            raise UsageError(f"User specified an unsupported autocast device_type '{self.device}'", fix="pass 'cpu'")
        self.fast_dtype = _default_dtypes[self.device] if dtype is None else dtype
        self._enabled = bool(enabled)
        if self._enabled and not is_available(self.device):
            warn("autocast: CUDA is not available. Disabling autocast.", UserWarning)
            self._enabled = False
        if self._enabled and self.fast_dtype not in _NARROW:
            kind = self.device.upper()
            warn(
                f"In {kind} autocast, but the target dtype {self.fast_dtype} is not supported. Disabling autocast. It "
                "supports bfloat16 and float16.",
                UserWarning,
            )
            self._enabled = False
        self._before: list[Any] = []

    def __enter__(self) -> autocast:
        self._before.append(state.autocast)
        set_mode(_changed(self.device, self.fast_dtype if self._enabled else None))
        return self

    def __exit__(self, *error: object) -> None:
        set_mode(self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run in the block."""

        @wraps(function)
        def decorated(*arguments: Any, **options: Any) -> Any:
            with self:
                return function(*arguments, **options)

        return decorated


def _changed(kind: str, dtype: DType | None) -> Precision | None:
    """The thread's mode with another dtype for a kind of device; None: off there."""
    dtypes = {} if state.autocast is None else dict(state.autocast.dtypes)
    dtypes.pop(kind, None)
    if dtype is not None:
        dtypes[kind] = dtype
    return Mode(dtypes) if dtypes else None


def _dtype_on(kind: str) -> DType | None:
    """What products are cast to on a kind of device at present."""
    return None if state.autocast is None else dict(state.autocast.dtypes).get(kind)


def set_mode(mode: Precision | None) -> None:
    """Switch the thread's mode; while it is on, compiled functions are looked up by it, through Python."""
    state.autocast = mode
    if state.detour in (None, "autocast", "anomaly"):
        state.detour = detour_of_modes()


@declared(method=False)
def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether products are cast on a kind of device; without an argument that is CUDA, as in torch.

    Example:
        >>> import autojit as aj
        >>> with aj.autocast("cpu"):
        ...     aj.is_autocast_enabled("cpu")
        True
    """
    if device_type in _OTHER_KINDS:
        return False
    return _dtype_on(device(device_type).type) is not None


_OTHER_KINDS = frozenset(("mps", "xpu", "hpu", "ipu", "xla", "mtia", "maia"))
"""Kinds of devices that programs written for torch ask about, of which there are none here."""


_default_dtypes: dict[str, DType] = {"cpu": bfloat16, "cuda": float16}


@declared(method=False)
def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that products are cast to, or would be.

    Raises:
        RuntimeError: a kind of device that ``autocast`` does not take.

    Example:
        >>> import autojit as aj
        >>> aj.get_autocast_dtype("cpu")
        autojit.bfloat16
    """
    kind = device(device_type).type
    if kind not in _default_dtypes:
        raise UsageError(f"unsupported device_type '{kind}' for autocast", fix="pass 'cpu'")
    return _dtype_on(kind) or _default_dtypes[kind]


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """For ``Function.forward``: with ``cast_inputs`` floats come in that dtype and no product inside is cast.

    Without it the mode stays as the caller has it, and ``custom_bwd`` brings it back for the backward.

    Example:
        >>> import autojit as aj
        >>> @aj.amp.custom_fwd(device_type="cpu", cast_inputs=aj.float32)
        ... def forward(ctx, x):
        ...     return x.dtype
        >>> from types import SimpleNamespace
        >>> with aj.autocast("cpu"):
        ...     forward(SimpleNamespace(), aj.ones(1, dtype=aj.bfloat16))
        autojit.float32
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def decorated(ctx: Any, *arguments: Any, **options: Any) -> Any:
        before = state.autocast
        ctx._autocast = before if cast_inputs is None else None
        if cast_inputs is None or before is None:
            return fwd(ctx, *arguments, **options)
        with autocast(device_type, enabled=False):
            given = [converted(value, cast_inputs) for value in arguments]
            return fwd(ctx, *given, **{name: converted(value, cast_inputs) for name, value in options.items()})

    return decorated


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """For ``Function.backward``: it runs in the mode that ``custom_fwd`` left."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def decorated(ctx: Any, *arguments: Any) -> Any:
        before = state.autocast
        set_mode(ctx._autocast)
        try:
            return bwd(ctx, *arguments)
        finally:
            set_mode(before)

    return decorated


@declared(method=False)
def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Switch the mode of this thread outside of a block.

    Raises:
        RuntimeError: a kind of device that is not there is switched on.

    Example:
        >>> import autojit as aj
        >>> aj.set_autocast_enabled("cpu", True)
        >>> (aj.ones(1, 1) @ aj.ones(1, 1)).dtype
        autojit.bfloat16
        >>> aj.set_autocast_enabled("cpu", False)
    """
    kind = device(device_type).type
    if enabled and (kind not in _default_dtypes or not is_available(kind)):
        raise UsageError(f"set_autocast_enabled: there is no device of the kind '{kind}'", fix="pass 'cpu'")
    set_mode(_changed(kind, _default_dtypes[kind] if enabled else None))


@declared(method=False)
def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """The dtype that ``set_autocast_enabled`` casts products to from now on.

    Raises:
        RuntimeError: the dtype is not bfloat16 or float16, or the kind of device is unknown.
    """
    kind = device(device_type).type
    if dtype not in _NARROW or kind not in _default_dtypes:
        raise UsageError(
            f"set_autocast_dtype: {dtype} on '{kind}' is not supported", fix="bfloat16 or float16 on 'cpu'"
        )
    before, _default_dtypes[kind] = _default_dtypes[kind], dtype
    note_switch(f"autocast dtype on {kind}", dtype, before, partial(set_autocast_dtype, kind))
    if _dtype_on(kind) is not None:
        set_mode(_changed(kind, dtype))


@declared(method=False)
def is_autocast_cpu_enabled() -> bool:
    """``is_autocast_enabled("cpu")`` under its older name."""
    return is_autocast_enabled("cpu")


@declared(method=False)
def get_autocast_cpu_dtype() -> DType:
    """``get_autocast_dtype("cpu")`` under its older name."""
    return get_autocast_dtype("cpu")


@declared(method=False)
def is_autocast_cache_enabled() -> bool:
    """False: casts are not kept."""
    return False


@declared(method=False)
def set_autocast_cache_enabled(enabled: bool) -> None:
    """Nothing: casts are not kept; a compiled step shares equal ones."""


@declared(method=False)
def clear_autocast_cache() -> None:
    """Nothing: no casts are kept."""
