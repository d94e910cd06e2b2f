"""Layers that learn the number of their inputs from the first batch: ``LazyLinear`` and its like.

Before the first call a forward pre-hook waits; it makes the parameters, and the module turns into the ordinary class.
Loading a state dict gives the parameters their shapes too.
"""

from __future__ import annotations

from typing import Any, ClassVar

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.nn import batchnorm, convolution
from autojit.nn.functional.windows import Extents
from autojit.nn.hooks import RemovableHandle
from autojit.nn.linear import Linear
from autojit.nn.module import Module
from autojit.nn.parameter import (
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
    is_lazy,
)  # fmt: skip
from autojit.tensor import Tensor
from autojit.tensor.state import outside_trace

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin(Module):
    """The lazy half of a module; ``initialize_parameters(*args)`` makes the parameters for a batch.

    A subclass names in ``cls_to_become``, or by the class keyword ``becomes``, the class that it turns into.
    """

    cls_to_become: ClassVar[type[Module] | None] = None
    _load_hook: RemovableHandle
    _initialize_hook: RemovableHandle

    def __init_subclass__(cls, *, becomes: type[Module] | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if becomes is not None:
            cls.cls_to_become = becomes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._add_hooks()

    def _add_hooks(self) -> None:
        self._load_hook = self.register_load_state_dict_pre_hook(_materialize_loaded)
        self._initialize_hook = self.register_forward_pre_hook(_infer_parameters, with_kwargs=True)

    def __getstate__(self) -> dict[str, Any]:
        """The hooks of its own are made again with the copy: a file holds no functions."""
        state = super().__getstate__()
        for kind, handle in (("_load_state_dict_pre_hooks", "_load_hook"), ("_forward_pre_hooks", "_initialize_hook")):
            own = state.pop(handle, None)
            state[kind] = {key: hook for key, hook in state[kind].items() if own is None or key != own.id}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._add_hooks()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        kept = [*self._parameters.items(), *self._persistent_buffers()]
        for name, tensor in kept:
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters for these arguments of ``forward``."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(is_lazy(tensor) for tensor in (*self._parameters.values(), *self._buffers.values()))

    def _become(self) -> None:
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook
        del self._load_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]


def _materialize_loaded(module: Module, state_dict: Any, prefix: str, *_: Any) -> None:
    """Before loading: give uninitialised tensors the shapes of those to be loaded."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        given = state_dict.get(prefix + name)
        if isinstance(tensor, UninitializedTensorMixin) and given is not None and not is_lazy(given):
            tensor.materialize(given.shape)


def _infer_parameters(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before the first call: make the parameters. A step that is being captured finds them there."""
    with outside_trace():
        module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise UsageError(f"module {module._get_name()} has not been fully initialized")
    module._become()


for _hook in (_infer_parameters, _materialize_loaded):
    vars(_hook)["removes_itself"] = True  # in a step too, for good


class _OfInputs(LazyModuleMixin):
    """A layer with a weight, whose parameters are drawn once its inputs are known; ``_inputs`` is their attribute."""

    _inputs: ClassVar[str]

    def reset_parameters(self) -> None:
        """Draw the parameters again; nothing before they are there."""
        if not self.has_uninitialized_params() and getattr(self, self._inputs) != 0:
            super().reset_parameters()  # type: ignore[misc]


def _prepare(module: Module, bias: bool, device: Any, dtype: DType | None) -> None:
    """A weight, and a bias where there is one, without shapes."""
    module.weight = UninitializedParameter(device=device, dtype=dtype)
    if bias:
        module.bias = UninitializedParameter(device=device, dtype=dtype)


def _materialize(tensor: Any, shape: tuple[int, ...]) -> None:
    if tensor is not None:
        tensor.materialize(shape)


class LazyLinear(_OfInputs, Linear, becomes=Linear):
    """``Linear`` whose ``in_features`` is the last extent of the first input.

    Example:
        >>> import autojit as aj
        >>> layer = aj.nn.LazyLinear(2)
        >>> layer(aj.ones(5, 3)).shape, layer
        (autojit.Size([5, 2]), Linear(in_features=3, out_features=2, bias=True))
    """

    _inputs = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: DType | None = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        _prepare(self, bias, device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take ``in_features`` from the input's last extent."""
        if self.has_uninitialized_params():
            self.in_features = int(input.shape[-1])
            _materialize(self.weight, (self.out_features, self.in_features))
            _materialize(self.bias, (self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from "
                    f"self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = int(input.shape[-1])


class _LazyConvolution(_OfInputs, convolution._Convolution):
    """What the six lazy convolutions share."""

    _inputs = "in_channels"

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take ``in_channels`` from the input."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._channels(input)
        if self.in_channels % self.groups:
            raise ArgumentError("in_channels must be divisible by groups", {"input": input})
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        _materialize(self.weight, (first, second // self.groups, *self.kernel_size))
        _materialize(self.bias, (self.out_channels,))
        self.reset_parameters()

    def _channels(self, input: Tensor) -> int:
        alone, batched = self._ndim + 1, self._ndim + 2
        if input.ndim not in (alone, batched):
            raise ShapeError(
                f"Expected {alone}D (unbatched) or {batched}D (batched) input to {type(self).__name__}, but got input "
                f"of size: {list(input.shape)}"
            )
        return int(input.shape[1] if input.ndim == batched else input.shape[0])


class _LazyForward(_LazyConvolution):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents = 1,
        padding: Extents = 0,
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self.out_channels = out_channels
        _prepare(self, bias, device, dtype)


class LazyConv1d(_LazyForward, convolution.Conv1d, becomes=convolution.Conv1d):
    """``Conv1d`` whose ``in_channels`` follows from the first input."""


class LazyConv2d(_LazyForward, convolution.Conv2d, becomes=convolution.Conv2d):
    """``Conv2d`` whose ``in_channels`` follows from the first input.

    Example:
        >>> import autojit as aj
        >>> layer = aj.nn.LazyConv2d(4, 3)
        >>> layer(aj.ones(1, 2, 5, 5)).shape, layer.in_channels
        (autojit.Size([1, 4, 3, 3]), 2)
    """


class LazyConv3d(_LazyForward, convolution.Conv3d, becomes=convolution.Conv3d):
    """``Conv3d`` whose ``in_channels`` follows from the first input."""


class _LazyTransposed(_LazyConvolution):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents = 1,
        padding: Extents = 0,
        output_padding: Extents = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Extents = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, None, dtype
        )
        self.out_channels = out_channels
        _prepare(self, bias, device, dtype)


class LazyConvTranspose1d(_LazyTransposed, convolution.ConvTranspose1d, becomes=convolution.ConvTranspose1d):
    """``ConvTranspose1d`` whose ``in_channels`` follows from the first input."""


class LazyConvTranspose2d(_LazyTransposed, convolution.ConvTranspose2d, becomes=convolution.ConvTranspose2d):
    """``ConvTranspose2d`` whose ``in_channels`` follows from the first input."""


class LazyConvTranspose3d(_LazyTransposed, convolution.ConvTranspose3d, becomes=convolution.ConvTranspose3d):
    """``ConvTranspose3d`` whose ``in_channels`` follows from the first input."""


class _LazyNormBase(LazyModuleMixin, batchnorm._NormBase):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            _prepare(self, bias, device, dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = aj.zeros((), dtype=aj.int64, device=device)

    def reset_parameters(self) -> None:
        """Running statistics as new, scale 1, shift 0; nothing before they are there."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take ``num_features`` from axis 1 of the input."""
        if self.has_uninitialized_params():
            self.num_features = int(input.shape[1])
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                _materialize(tensor, (self.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, batchnorm.BatchNorm1d, becomes=batchnorm.BatchNorm1d):
    """``BatchNorm1d`` whose ``num_features`` follows from the first input.

    Example:
        >>> import autojit as aj
        >>> layer = aj.nn.LazyBatchNorm1d()
        >>> layer(aj.ones(4, 3)).shape, layer.num_features
        (autojit.Size([4, 3]), 3)
    """


class LazyBatchNorm2d(_LazyNormBase, batchnorm.BatchNorm2d, becomes=batchnorm.BatchNorm2d):
    """``BatchNorm2d`` whose ``num_features`` follows from the first input."""


class LazyBatchNorm3d(_LazyNormBase, batchnorm.BatchNorm3d, becomes=batchnorm.BatchNorm3d):
    """``BatchNorm3d`` whose ``num_features`` follows from the first input."""


class LazyInstanceNorm1d(_LazyNormBase, batchnorm.InstanceNorm1d, becomes=batchnorm.InstanceNorm1d):
    """``InstanceNorm1d`` whose ``num_features`` follows from the first input."""


class LazyInstanceNorm2d(_LazyNormBase, batchnorm.InstanceNorm2d, becomes=batchnorm.InstanceNorm2d):
    """``InstanceNorm2d`` whose ``num_features`` follows from the first input."""


class LazyInstanceNorm3d(_LazyNormBase, batchnorm.InstanceNorm3d, becomes=batchnorm.InstanceNorm3d):
    """``InstanceNorm3d`` whose ``num_features`` follows from the first input."""
