"""Random training programs: a model, an optimiser with random options, and what happens between calls of the step.

The law: run compiled, a program leaves what it leaves run eagerly (losses, parameters, state of the optimiser), to
rounding in float64, and does not capture again and again.
"""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj

Rng = np.random.Generator
CALLS = 14
TOLERANCE = 1e-12
"""Relative to the largest of an array: some hundred roundings of float64 in each of CALLS steps."""


def _sometimes(rng: Rng, value: Any, otherwise: Any) -> Any:
    return value if rng.random() < 0.5 else otherwise


OPTIMISERS: dict[str, Callable[[Rng], dict[str, Any]]] = {
    "SGD": lambda r: _sgd(r),
    "Adam": lambda r: {"lr": 0.02, "amsgrad": _sometimes(r, True, False), "weight_decay": _sometimes(r, 0.1, 0)},
    "AdamW": lambda r: {"lr": 0.02, "amsgrad": _sometimes(r, True, False), "maximize": _sometimes(r, True, False)},
    "Adamax": lambda r: {"lr": 0.02, "weight_decay": _sometimes(r, 0.1, 0)},
    "NAdam": lambda r: {"lr": 0.02, "decoupled_weight_decay": _sometimes(r, True, False), "weight_decay": 0.05},
    "RAdam": lambda r: {"lr": 0.02, "weight_decay": _sometimes(r, 0.1, 0)},
    "RMSprop": lambda r: {
        "lr": 0.01, "momentum": _sometimes(r, 0.8, 0), "centered": _sometimes(r, True, False),
    },
    "Adagrad": lambda r: {"lr": 0.05, "lr_decay": _sometimes(r, 0.1, 0), "initial_accumulator_value": 0.1},
    "Adadelta": lambda r: {"lr": 0.5, "rho": 0.8, "weight_decay": _sometimes(r, 0.1, 0)},
    "Rprop": lambda r: {"lr": 0.01},
    "ASGD": lambda r: {"lr": 0.02, "t0": _sometimes(r, 3, 1e6), "weight_decay": _sometimes(r, 0.1, 0)},
    "Adafactor": lambda r: {"lr": 0.02, "weight_decay": _sometimes(r, 0.1, 0)},
}  # fmt: skip


def _sgd(rng: Rng) -> dict[str, Any]:
    momentum = _sometimes(rng, 0.9, 0)
    nesterov = bool(momentum) and bool(_sometimes(rng, True, False))
    return {
        "lr": 0.05,
        "momentum": momentum,
        "nesterov": nesterov,
        "dampening": 0 if nesterov else _sometimes(rng, 0.3, 0),
        "weight_decay": _sometimes(rng, 0.1, 0),
    }


class Program:
    """One run of a program; ``wrap`` compiles its functions or leaves them as they are."""

    def __init__(self, seed: int, wrap: Callable[..., Any]) -> None:
        self.rng = rng = np.random.default_rng(seed)
        sizes = [3, int(rng.integers(2, 5)), 2]
        self.params = [
            aj.nn.Parameter(aj.tensor(rng.standard_normal(shape) * 0.7))
            for a, b in itertools.pairwise(sizes)
            for shape in ((a, b), (b,))
        ]
        self.spare = aj.nn.Parameter(aj.tensor(rng.standard_normal(2)))
        self.activation = [aj.tanh, aj.sigmoid, aj.sin][int(rng.integers(3))]
        self.name = str(rng.choice(list(OPTIMISERS)))
        options = OPTIMISERS[self.name](rng)
        groups = [{"params": self.params[:2]}, {"params": self.params[2:], "lr": options["lr"] * 0.5}]
        self.optimizer: Any = getattr(aj.optim, self.name)(groups if rng.random() < 0.4 else self.params, **options)
        self.micro = int(rng.integers(1, 4))
        self.is_split = bool(rng.random() < 0.4)  # gradients and update in two functions
        self.zeroes = str(rng.choice(["first", "last", "to zero", "thrown away", "between"]))
        self.clips = bool(rng.random() < 0.3)
        self.step = wrap(self._gradients if self.is_split else self._whole)
        self.update = wrap(self._update)
        self.saved = [copy.deepcopy(self.optimizer.state_dict())]

    def loss(self, x: aj.Tensor) -> aj.Tensor:
        a, b, c, d = self.params
        return ((self.activation(x @ a + b) @ c + d + self.spare) ** 2).mean()

    def _gradients(self, x: aj.Tensor) -> aj.Tensor:
        if self.zeroes == "first":
            self.optimizer.zero_grad()
        elif self.zeroes == "to zero":
            self.optimizer.zero_grad(set_to_none=False)
        elif self.zeroes == "thrown away":
            self.loss(x * 2).backward()
            self.optimizer.zero_grad()
        total = aj.zeros((), dtype=aj.float64)
        for k in range(self.micro):
            loss = self.loss(x + k * 0.1) / self.micro
            loss.backward()
            total = total + loss.detach()
        if self.clips:
            aj.nn.utils.clip_grad_norm_([p for p in self.params if p.grad is not None], 0.5)
        return total

    def _update(self) -> None:
        self.optimizer.step()
        if self.zeroes == "last":
            self.optimizer.zero_grad()

    def _whole(self, x: aj.Tensor) -> aj.Tensor:
        found = self._gradients(x)
        self._update()
        return found

    def run(self) -> dict[str, Any]:
        losses = []
        for _ in range(CALLS):
            x = aj.tensor(self.rng.standard_normal((4, 3)))
            losses.append(self.step(x))
            if self.is_split:
                self.update()
            if self.zeroes == "between" and self.rng.random() < 0.5:
                self.optimizer.zero_grad()
            for _ in range(int(self.rng.integers(0, 3))):
                getattr(self, str(self.rng.choice(ACTIONS)))()
        return {
            "losses": [loss.item() for loss in losses],
            "parameters": [p.tolist() for p in (*self.params, self.spare)],
            "gradients": [None if p.grad is None else p.grad.tolist() for p in (*self.params, self.spare)],
            "optimizer": _plain(self.optimizer.state_dict()),
        }

    # what happens between calls

    def save(self) -> None:
        self.saved.append(copy.deepcopy(self.optimizer.state_dict()))

    def load(self) -> None:
        chosen = self.saved[int(self.rng.integers(len(self.saved)))]
        if len(chosen["param_groups"]) == len(self.optimizer.param_groups):
            self.optimizer.load_state_dict(chosen)

    def load_own(self) -> None:
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def change_lr(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * float(self.rng.choice([0.5, 1.5]))

    def freeze(self) -> None:
        p = self.params[int(self.rng.integers(len(self.params)))]
        p.requires_grad_(not p.requires_grad)
        if not any(q.requires_grad for q in self.params):
            p.requires_grad_(True)

    def clear(self) -> None:
        if self.name != "Adagrad":  # whose state is made with the optimiser
            self.optimizer.state.clear()

    def new_state(self) -> None:
        if self.name != "Adagrad":
            self.optimizer.state = defaultdict(dict)

    def forget(self) -> None:
        if self.name != "Adagrad":
            self.optimizer.state.pop(self.params[int(self.rng.integers(len(self.params)))], None)

    def replace_moment(self) -> None:
        known = self.optimizer.state[self.params[0]]
        for name, value in list(known.items()):
            if isinstance(value, aj.Tensor) and name != "step" and value.ndim:
                known[name] = value * 0.5

    def replace_group(self) -> None:
        self.optimizer.param_groups[0] = dict(self.optimizer.param_groups[0])

    def add_group(self) -> None:
        if all(p is not self.spare for group in self.optimizer.param_groups for p in group["params"]):
            self.optimizer.add_param_group({"params": [self.spare]})

    def move_parameter(self) -> None:
        with aj.no_grad():
            self.params[1].add_(0.1)

    def new_data(self) -> None:
        self.params[1].data = self.params[1].data * 0.9

    def look(self) -> None:
        self.kept = [p.grad for p in self.params]

    def change_gradient(self) -> None:
        p = self.params[int(self.rng.integers(len(self.params)))]
        if p.grad is not None:
            p.grad = p.grad * 0.5


ACTIONS = [
    "save", "load", "load_own", "change_lr", "freeze", "clear", "new_state", "forget", "replace_moment",
    "replace_group", "add_group", "move_parameter", "new_data", "look", "change_gradient",
]  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """The first place where two results differ by more than rounding, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return f"{where}: {sorted(a)} and {sorted(b)}"
        return next((d for key in a if (d := difference(a[key], b[key], f"{where}.{key}"))), None)
    if isinstance(a, list) and isinstance(b, list) and all(isinstance(v, int | float) for v in (*a, *b)):
        size = max([1.0, *(abs(v) for v in a)])
        is_close = len(a) == len(b) and all(abs(v - w) <= TOLERANCE * size or v is w for v, w in zip(a, b, strict=True))
        return None if is_close else f"{where}: {a} and {b}"
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next((d for k, (v, w) in pairs if (d := difference(v, w, f"{where}[{k}]"))), None)
    if isinstance(a, float) and isinstance(b, float):
        return None if abs(a - b) <= TOLERANCE * max(1.0, abs(a)) else f"{where}: {a} and {b}"
    return None if a == b else f"{where}: {a} and {b}"


def check(seed: int) -> str | None:
    """How the compiled run of a program differs from the eager one, or None."""
    expected = Program(seed, lambda function: function).run()
    return difference(expected, Program(seed, aj.jit).run())
