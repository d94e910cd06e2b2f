"""Batch and instance normalisation: layers with running statistics."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.user_warnings import warn
from autojit.nn import functional as F
from autojit.nn.declared_layer import AffineLayer
from autojit.nn.module import Module
from autojit.tensor import Tensor

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "SyncBatchNorm",
]  # fmt: skip


class _NormBase(AffineLayer, shows="*num_features eps momentum affine bias track_running_stats"):
    """Parameters and buffers that both kinds share."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _version = 2

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._add_affine((num_features,) if affine else None, bias, device, dtype)
        tracked = track_running_stats
        self.register_buffer("running_mean", aj.zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", aj.ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", aj.zeros((), dtype=aj.int64, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batch seen."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Running statistics as new, scale 1, shift 0."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any) -> None:
        """States of before version 2 have no number of batches: the present one stands."""
        key = f"{prefix}num_batches_tracked"
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats and key not in state_dict:
            known = self.num_batches_tracked
            state_dict[key] = aj.tensor(0, device="cpu") if known is None or known.is_meta else known
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self._ranks:
            expected = " or ".join(f"{rank}D" for rank in self._ranks)
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            use_batch,
            self._next_momentum(),
            self.eps,
        )

    def _next_momentum(self) -> Any:
        """The weight of this batch in the running statistics; without momentum their plain average."""
        momentum = 0.0 if self.momentum is None else self.momentum
        if not (self.training and self.track_running_stats) or self.num_batches_tracked is None:
            return momentum
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            return 1.0 / self.num_batches_tracked.to(aj.float64)
        return momentum


class BatchNorm1d(_BatchNorm, ranks=(2, 3)):
    """Batch normalisation of ``[n, c]`` or ``[n, c, l]``."""


class BatchNorm2d(_BatchNorm, ranks=(4,)):
    """Batch normalisation of ``[n, c, h, w]``."""


class BatchNorm3d(_BatchNorm, ranks=(5,)):
    """Batch normalisation of ``[n, c, d, h, w]``."""


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _other_channels(self, input: Tensor, dim: int) -> None:
        """ValueError for other channels than the layer has, or a warning where no parameter is per channel."""
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: "
                f"{input.shape[dim]}."
            )
        warn(
            f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in "
            "num_features, which is not used because affine=False"
        )

    def _get_no_batch_dim(self) -> int:
        """The axes of one sample; subclasses for samples of other ranks say theirs, as torch's do."""
        return int(self._ranks[0])

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        is_single = input.ndim == self._get_no_batch_dim()
        if input.shape[not is_single] != self.num_features:
            self._other_channels(input, int(not is_single))
        x = input.unsqueeze(0) if is_single else input
        use_input = self.training or not self.track_running_stats
        found = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, use_input, self.momentum or 0.0, self.eps
        )
        return found.squeeze(0) if is_single else found


class InstanceNorm1d(_InstanceNorm, ranks=(2, 3)):
    """Instance normalisation of ``[n, c, l]`` or ``[c, l]``."""


class InstanceNorm2d(_InstanceNorm, ranks=(3, 4)):
    """Instance normalisation of ``[n, c, h, w]`` or ``[c, h, w]``."""


class InstanceNorm3d(_InstanceNorm, ranks=(4, 5)):
    """Instance normalisation of ``[n, c, d, h, w]`` or ``[c, d, h, w]``."""


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over all processes' batches; in a single process it is ``BatchNorm``.

    Shapes: ``[n, c, ...]`` kept.

    Args:
        process_group: accepted for torch's sake; there is one process.

    Example:
        >>> from autojit import nn
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())
        >>> type(nn.SyncBatchNorm.convert_sync_batchnorm(model)[0]).__name__
        'SyncBatchNorm'
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any | None = None,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any | None = None) -> Module:
        """The module with every ``BatchNorm`` layer replaced by one of this class on the same tensors."""
        found = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias"):
                if getattr(module, name) is not None:
                    setattr(made, name, getattr(module, name))
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(made, name, getattr(module, name))
            made.training = module.training
            found = made
        for name, child in module.named_children():
            found.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return found
