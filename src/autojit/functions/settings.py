"""Settings that programs ask for and that change nothing here, or the little they change.

One pool of threads runs compiled steps, and results do not depend on the run: most of these functions remember what
they are told. How precise products of float32 are matters on CUDA devices alone.
"""

from __future__ import annotations

from typing import Any

from autojit.core.epoch import note_switch
from autojit.core.errors import UsageError
from autojit.core.product_precision import PRECISIONS, product_precision, set_product_precision
from autojit.core.top_level import TOP_LEVEL
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import declared
from autojit.functions.legacy import kind_name
from autojit.functions.namespace import (
    are_deterministic_algorithms_enabled,
    is_deterministic_algorithms_warn_only_enabled,
    use_deterministic_algorithms,
)  # fmt: skip
from autojit.functions.storages import AnyStorage
from autojit.tensor import Tensor

_DEBUG_MODES = ("default", "warn", "error")
TOP_LEVEL |= dict.fromkeys(("has_lapack", "has_spectral", "has_mkl", "has_openmp"), __name__)
has_lapack = has_spectral = True  # decompositions and Fourier transforms, by NumPy
has_mkl = has_openmp = False
_interop_threads = 1
_flushes = False


@declared(method=False)
def get_float32_matmul_precision() -> str:
    """What ``set_float32_matmul_precision`` was given last.

    Example:
        >>> import autojit as aj
        >>> aj.get_float32_matmul_precision()
        'highest'
    """
    return product_precision()


@declared(method=False)
def set_float32_matmul_precision(precision: str) -> None:
    """Allow "high" or "medium" precision of products of float32, or ask for the "highest".

    On CUDA devices with tensor cores both of the former round the operands of matrix products to 11 bits (TF32);
    convolutions, and all products on the CPU, are computed in float32 in any case.
    """
    if precision not in PRECISIONS:
        warn(
            f"{precision!r} is not one of 'highest', 'high', or 'medium'; the precision stays {product_precision()!r}",
            UserWarning,
        )
        return
    set_product_precision(precision)


@declared(method=False)
def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: whether deterministic results were asked for not at all, with warnings, or with errors."""
    if not are_deterministic_algorithms_enabled():
        return 0
    return 1 if is_deterministic_algorithms_warn_only_enabled() else 2


@declared(method=False)
def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """``use_deterministic_algorithms`` by "default", "warn" or "error", or 0 to 2.

    Raises:
        TypeError: ``debug_mode`` is neither a number nor a name.
        RuntimeError: it is not one of these.

    Example:
        >>> import autojit as aj
        >>> aj.set_deterministic_debug_mode("default")
        >>> aj.get_deterministic_debug_mode()
        0
    """
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    names: tuple[Any, ...] = _DEBUG_MODES if isinstance(debug_mode, str) else (0, 1, 2)
    if debug_mode not in names:
        raise UsageError(
            f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
        )
    level = names.index(debug_mode)
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


@declared(method=False)
def get_num_interop_threads() -> int:
    """What ``set_num_interop_threads`` was given last; ops run one after another."""
    return _interop_threads


@declared(method=False)
def set_num_interop_threads(num: int) -> None:
    """Remember a number of threads for running ops beside each other, which is never done.

    Raises:
        RuntimeError: ``num`` is not positive.
    """
    global _interop_threads
    if num <= 0:
        raise UsageError(f"set_num_interop_threads expects a positive integer, got {num}")
    before, _interop_threads = _interop_threads, num
    note_switch("interop threads", num, before, set_num_interop_threads)


@declared(method=False)
def init_num_threads() -> None:
    """Nothing: threads start when a compiled step first uses them."""


@declared(method=False)
def set_flush_denormal(mode: bool) -> bool:
    """Take numbers smaller than the least normal one (1.2e-38 in float32) for zero, or keep them.

    It is said for the calling thread, as in torch: its eager ops and the compiled steps that it calls, on all their
    threads. Python's own floats follow as well. Where many such numbers come up (tails of distributions, signals that
    die out), processors that compute with them in microcode are several times as fast without them.

    Returns:
        Whether this processor can: x86 and 64-bit ARM do.

    Example:
        >>> import autojit as aj
        >>> aj.set_flush_denormal(True)
        True
        >>> aj.tensor([1e-39]) * 0.5
        tensor([0.])
        >>> aj.set_flush_denormal(False)
        True
        >>> bool((aj.tensor([1e-39]) * 0.5 > 0).all())
        True
    """
    global _flushes
    if not isinstance(mode, bool):
        raise TypeError(f"set_flush_denormal expects a bool, but got {type(mode).__name__}")
    from autojit.runtime.pool import flush_denormals  # the native half, which importing autojit does without

    if not flush_denormals(mode):
        return not mode
    before, _flushes = _flushes, mode
    note_switch("flush denormal", mode, before, _put_flush_denormal)
    return True


def _put_flush_denormal(mode: bool) -> None:
    set_flush_denormal(mode)


@declared(method=False)
def compiled_with_cxx11_abi() -> bool:
    """True, which nothing here depends on."""
    return True


@declared(method=False)
def is_storage(obj: object, /) -> bool:
    """Whether an object is a tensor's storage.

    Example:
        >>> import autojit as aj
        >>> aj.is_storage(aj.ones(1).untyped_storage())
        True
    """
    return isinstance(obj, AnyStorage)


@declared()
def is_distributed(input: Tensor) -> bool:
    """False: no tensor is on several machines."""
    return False


@declared(method=False)
def typename(obj: object, /) -> str:
    """The name of a tensor's type, or of an object's class with its module.

    Example:
        >>> import autojit as aj
        >>> aj.typename(aj.ones(1))
        'autojit.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return kind_name(obj)
    owner: Any = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(owner, "__module__", "") or ""
    name = owner.__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"
