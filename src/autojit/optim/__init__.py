"""torch.optim's optimisers and schedules, one formula for eager and compiled steps."""

from __future__ import annotations

from autojit.optim import lr_scheduler, swa_utils
from autojit.optim import torch_paths as torch_paths
from autojit.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from autojit.optim.adaptive import ASGD, Adadelta, Adagrad, RMSprop, Rprop
from autojit.optim.factored import Adafactor, Muon
from autojit.optim.lbfgs import LBFGS
from autojit.optim.optimizer import Optimizer
from autojit.optim.sgd import SGD
from autojit.optim.sparse_adam import SparseAdam
from autojit.optim.swapping import swap_in_optimizer_params_and_state

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip
