"""Windows for ``stft``: periodic by default, unlike those of ``signal.windows``, which compute them."""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.device import DeviceLike
from autojit.core.dtypes import DType, default_dtype, float64
from autojit.core.errors import UsageError
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import cast
from autojit.functions.factories import finish
from autojit.signal import windows
from autojit.tensor import Tensor


def _window(
    shape: Callable[..., Tensor],
    length: int,
    periodic: bool,
    dtype: DType | None,
    device: DeviceLike,
    requires_grad: bool,
    **parameters: object,
) -> Tensor:
    name, kind = f"{_NAMES.get(shape, shape.__name__)}_window", dtype or default_dtype()
    if not isinstance(length, int):
        raise TypeError(f"{name}(): argument 'window_length' must be int, not {type(length).__name__}")
    if not (kind.is_floating_point or kind.is_complex):
        raise UsageError(f"{name} expects floating point dtypes, got: {kind}")
    if length < 0:
        raise UsageError(f"{name} requires non-negative window_length, got window_length={length}")
    return finish(cast(shape(length, sym=not periodic, dtype=float64, **parameters), kind), requires_grad, device)


_NAMES = {windows.general_cosine: "hamming"}


def _plain(shape: Callable[..., Tensor], what: str, example: str) -> Callable[..., Tensor]:
    def window(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DType | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        return _window(shape, window_length, periodic, dtype, device, requires_grad)

    told = f"""{what}: ``[window_length]``.

    Raises:
        RuntimeError: a negative length, or a dtype that is not a float.

    Example:
        >>> import autojit as aj
        >>> {example}
    """
    return declared(method=False, factory=True)(named(window, f"{shape.__name__}_window", told))


bartlett_window = _plain(
    windows.bartlett,
    "A triangle from 0 over 1 to 0",
    "aj.bartlett_window(4)\n        tensor([0.0000, 0.5000, 1.0000, 0.5000])",
)
blackman_window = _plain(
    windows.blackman,
    "Cosines with the weights 0.42, 0.5, 0.08",
    "aj.blackman_window(5, periodic=False)[2]\n        tensor(1.)",
)
hann_window = _plain(
    windows.hann,
    "``0.5 - 0.5 cos``",
    "aj.hann_window(4)\n        tensor([0.0000, 0.5000, 1.0000, 0.5000])",
)


@declared(method=False, factory=True)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``alpha - beta cos``: ``[window_length]``.

    Raises:
        RuntimeError: a negative length, or a dtype that is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.hamming_window(4)
        tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return _window(windows.general_cosine, window_length, periodic, dtype, device, requires_grad, a=[alpha, beta])


@declared(method=False, factory=True)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``i0(beta sqrt(1 - t**2)) / i0(beta)`` for t from -1 to 1: ``[window_length]``.

    Raises:
        RuntimeError: a negative length, or a dtype that is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.kaiser_window(5, periodic=False)[2]
        tensor(1.)
    """
    return _window(windows.kaiser, window_length, periodic, dtype, device, requires_grad, beta=beta)
