"""Moving and casting what a Module keeps: ``module.to(...)`` and its like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Self

import autojit as aj
from autojit.core.device import META, Device
from autojit.core.dtypes import dtype_of
from autojit.core.errors import UnsupportedError, UsageError
from autojit.core.user_warnings import warn
from autojit.functions.memory import rank_of
from autojit.nn.parameter import Parameter, is_lazy
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch


def convert_parameter(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
    """Replace the data of a parameter and its gradient by ``fn`` of them; the parameter object stays.

    ``fn`` sees the tensors themselves: if it writes to them, histories that kept them know.
    """
    given: Tensor = parameter.data if is_lazy(parameter) else parameter
    grad, converted = parameter.grad, fn(given)
    if converted is not given:
        parameter.grad = None  # a gradient of the old dtype would not fit the new data
        parameter.data = converted.detach()
    if grad is None:
        return
    converted = fn(grad)
    if converted is not grad or parameter.grad is None:
        parameter.grad = converted.detach().requires_grad_(grad.requires_grad)


_FORMS = re.compile("([PN]([DN]B?B?)?|DB?B?|TB?B?)?")
"""Arguments of ``to`` by place: a device (P; N: None) and a dtype (D), a dtype, or a tensor (T); then switches (B)."""

_KEYWORDS = frozenset({"device", "dtype", "tensor", "non_blocking", "copy", "memory_format"})


def _letter(argument: Any) -> str:
    kinds = {"B": bool, "D": aj.dtype, "T": Tensor, "P": str | int | Device, "N": type(None)}
    return next((letter for letter, kind in kinds.items() if isinstance(argument, kind)), "X")


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Device and dtype (None: unchanged) of the arguments of ``to``.

    Raises:
        TypeError: they are of no form that ``to`` has.
    """
    if not _FORMS.fullmatch("".join([_letter(dtype_of(a)) for a in args])) or not _KEYWORDS.issuperset(kwargs):
        given = ", ".join([*(type(a).__name__ for a in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())])
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({given}), but expected one of: (device, dtype, "
            "non_blocking), (dtype, non_blocking), (tensor, non_blocking), each with memory_format by name"
        )
    device, dtype = kwargs.get("device"), dtype_of(kwargs.get("dtype"))
    for arg in (*map(dtype_of, args), *([kwargs["tensor"]] if "tensor" in kwargs else [])):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, aj.dtype):
            dtype = arg
        elif arg is not None and not isinstance(arg, bool):
            device = arg
    return (None if device is None else aj.device(device)), dtype


class ConversionMixin:
    """The moving and casting half of Module."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    children: Callable[[], Iterator[Any]]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the data of every parameter, its gradient and every buffer by ``fn`` of it."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with aj.no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    convert_parameter(parameter, fn)
            for name, buffer in self._buffers.items():
                if buffer is None:
                    continue
                if is_lazy(buffer):
                    buffer.data = fn(buffer.data)
                else:
                    self._buffers[name] = fn(buffer)
        bump_guard_epoch()
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast in place: ``to(device)``, ``to(dtype)``, ``to(tensor)``; floating tensors only are cast.

        ``memory_format`` is for the tensors of as many axes as it has: ``channels_last`` for those of four.
        """
        device, dtype = parse_to(args, kwargs)
        if kwargs.get("copy"):
            raise UsageError(".to() does not accept copy argument", fix="copy.deepcopy(module).to(...)")
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        if dtype is not None and dtype.is_complex:
            warn(
                "Complex modules are a new feature under active development whose design may change, and some modules "
                "might not work as expected when using complex tensors as parameters or buffers."
            )
        wanted = kwargs.get("memory_format")
        laid = None if wanted is None else rank_of(wanted)

        def convert(tensor: Tensor) -> Tensor:
            there = moved_or_cast(tensor)
            return there.to(memory_format=wanted) if tensor.ndim == laid else there

        def moved_or_cast(tensor: Tensor) -> Tensor:
            cast = dtype if tensor.is_floating_point() or tensor.is_complex() else None
            if device is None:
                return tensor if cast is None else tensor.to(cast)
            if tensor.is_meta and device != META:
                raise UnsupportedError(
                    "Cannot copy out of meta tensor; no data! Please use autojit.nn.Module.to_empty() instead of "
                    "autojit.nn.Module.to() when moving module from meta to a different device.",
                    fix=f"module.to_empty(device={str(device)!r}), then initialise it or load a state_dict",
                )
            return tensor.to(device) if cast is None else tensor.to(device, cast)

        return self._apply(convert)

    def _cast_floats(self, dtype: Any) -> Self:
        return self._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def float(self) -> Self:
        """Cast floating parameters and buffers to float32."""
        return self._cast_floats(aj.float32)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64."""
        return self._cast_floats(aj.float64)

    def half(self) -> Self:
        """Cast floating parameters and buffers to float16."""
        return self._cast_floats(aj.float16)

    def bfloat16(self) -> Self:
        """Cast floating parameters and buffers to bfloat16."""
        return self._cast_floats(aj.bfloat16)

    def type(self, dst_type: Any) -> Self:
        """Cast all parameters and buffers to ``dst_type``."""
        return self._apply(lambda tensor: tensor.to(dst_type))

    def cpu(self) -> Self:
        """Move parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | str | None = None) -> Self:
        """Move parameters and buffers to a CUDA device."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move to a device without copying: the values are undefined afterwards."""
        return self._apply(lambda tensor: aj.empty_like(tensor, device=device), recurse)

    def share_memory(self) -> Self:
        """Move parameters, their gradients and buffers to memory that processes share.

        Raises:
            RuntimeError: other tensors show the memory of one, or one is lazy and has no memory yet.
        """
        module: Any = self
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.share_memory_()
            if tensor.grad is not None:
                tensor.grad.share_memory_()
        bump_guard_epoch()
        return self
