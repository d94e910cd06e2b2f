"""torch.optim's optimisers and schedules, one formula for eager and compiled steps."""

from __future__ import annotations

from autojit.optim import lr_scheduler, swa_utils
from autojit.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from autojit.optim.adaptive import ASGD, Adadelta, Adagrad, RMSprop, Rprop
from autojit.optim.lbfgs import LBFGS
from autojit.optim.optimizer import Optimizer
from autojit.optim.sgd import SGD
from autojit.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
