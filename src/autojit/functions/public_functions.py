"""Which functions a class or a mode of torch's override protocol sees the calls of."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import FunctionType
from typing import Any

from autojit.functions import index, overridable
from autojit.functions.lazy_methods import LaterMethod
from autojit.tensor.tensor import Tensor

NAMESPACES = ("autojit", "autojit.nn.functional", "autojit.linalg", "autojit.fft", "autojit.special")
"""Whose functions can be overridden, besides the methods of Tensor."""
_IGNORED_NAMES = """
    are_deterministic_algorithms_enabled can_cast compile default_dtype from_dlpack from_file from_numpy
    frombuffer get_default_device get_default_dtype get_device_module get_num_threads get_printoptions
    get_rng_state has_mkl initial_seed is_autocast_available is_autocast_cache_enabled is_autocast_enabled
    is_deterministic_algorithms_enabled is_grad_enabled is_inference_mode_enabled is_storage is_tensor
    is_warn_always_enabled jit load manual_seed promote_types save seed set_autocast_cache_enabled
    set_autocast_enabled set_default_device set_default_dtype set_default_tensor_type
    set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal set_num_threads
    set_printoptions set_rng_state set_warn_always torch_names use_deterministic_algorithms"""
IGNORED = frozenset(_IGNORED_NAMES.split())
"""Public functions that no class or mode sees: they are about the process, not about tensors."""
_KEPT_METHODS_NAMES = """
    __array__ __class_getitem__ __copy__ __deepcopy__ __delattr__ __dir__ __dlpack__ __dlpack_device__
    __format__ __getattribute__ __getstate__ __hash__ __init__ __init_subclass__ __new__ __reduce__
    __reduce_ex__ __setattr__ __setstate__ __sizeof__ __subclasshook__ __torch_function__ as_subclass"""
_KEPT_METHODS = frozenset(_KEPT_METHODS_NAMES.split())
_KEPT_PROPERTIES = frozenset(("spec", "volatile"))
"""Properties that torch's tensors do not have."""
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "__mul__": "mul",
    "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div", "__itruediv__": "div_", "__matmul__": "matmul",
    "__mod__": "remainder", "__pow__": "pow", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__neg__": "neg", "__abs__": "abs",
}  # fmt: skip
"""The method that torch tells a class or mode of, by operator; of others it is the operator's own."""


def public_functions() -> Iterator[tuple[str, str, FunctionType]]:
    """Place, name and object of every function that can be overridden; of methods the place is ``autojit.Tensor``."""
    for place in NAMESPACES:
        module = import_module(place)
        names = {*vars(module), *(_LATER if place == "autojit" else ())}
        for name in sorted(names):
            if not name.startswith("_") and name not in IGNORED:
                value = getattr(module, name, None)
                if type(value) is FunctionType and value.__module__.partition(".")[0] == "autojit":
                    yield place, name, value
    for name, value in sorted(vars(Tensor).items()):
        method = getattr(Tensor, name) if isinstance(value, LaterMethod) else value
        is_private = name.startswith("_") and not name.endswith("__")
        if type(method) is FunctionType and name not in _KEPT_METHODS and not is_private:
            yield "autojit.Tensor", name, method


def accessors() -> Iterator[tuple[str, FunctionType, Any]]:
    """Name, function and accessor (``Tensor.T.__get__``, ``Tensor.grad.__set__``) of Tensor's properties."""
    for name, value in sorted(vars(Tensor).items()):
        if isinstance(value, property) and not name.startswith("_") and name not in _KEPT_PROPERTIES:
            pairs = (value.fget, value.__get__), (value.fset, value.__set__), (value.fdel, value.__delete__)
            yield from ((name, function, seen) for function, seen in pairs if type(function) is FunctionType)


def shown_functions() -> Iterator[tuple[FunctionType, Any]]:
    """Every such function, and what a class or mode is told of in its place."""
    for place, name, function in list(public_functions()):
        method = _OPERATORS.get(name) if place == "autojit.Tensor" else None
        yield function, getattr(Tensor, method) if method else function
    for _, function, accessor in accessors():
        yield function, accessor


_LATER = frozenset(
    name
    for home, names in index.FUNCTIONS.items()
    if home.partition(".")[0] in ("functions", "nn", "sparse", "special", "top_level")  # not what works on functions
    for name in names.split()
)

overridable.sources.append(shown_functions)
