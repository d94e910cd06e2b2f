"""torch.optim.lr_scheduler's names: simple schedules (lr_base.py), cyclic ones (lr_cycles.py), composites."""

from __future__ import annotations

from autojit.optim.lr_base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from autojit.optim.lr_base import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)  # fmt: skip
from autojit.optim.lr_composite import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from autojit.optim.lr_cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR


class _LRScheduler(LRScheduler):
    """The name that `LRScheduler` had for programs that derive from it."""


__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
