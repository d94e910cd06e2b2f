"""``jit(model)`` with the loss, backward pass, clipping and optimiser outside, as ``torch.compile(model)`` is used.

``python -m benchmarks.compiled_models [--only cnn,vae] [--peer compile]``: microseconds of a training step by its
parts, beside torch (eager, or compiled), in fresh processes in turns; processor time, one thread, lower quartiles of
the second half of the steps.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PARTS = ("forward", "backward", "step", "all")
Loss = Callable[[Any], Any]
Program = tuple[Any, Loss]  # a model, and the loss of what is called in its place


class Given:
    """Random data for a torch-like namespace."""

    def __init__(self, T: Any) -> None:
        self.T, self.draws = T, np.random.default_rng(0)

    def floats(self, *shape: int) -> Any:
        return self.T.tensor(self.draws.standard_normal(shape).astype(np.float32))

    def whole(self, high: int, *shape: int) -> Any:
        return self.T.tensor(self.draws.integers(high, size=shape))


def mlp(T: Any, given: Given) -> Program:
    nn = T.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, lambda f: nn.functional.cross_entropy(f(given.floats(32, 16)), given.whole(4, 32))


def cnn(T: Any, given: Given) -> Program:
    nn = T.nn
    first = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(16, 10))
    return model, lambda f: nn.functional.cross_entropy(f(given.floats(16, 1, 16, 16)), given.whole(10, 16))


def lstm(T: Any, given: Given) -> Program:
    nn = T.nn

    class Tagger(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.rnn, self.out = nn.Embedding(100, 32), nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 9)

        def forward(self, x: Any) -> Any:
            return self.out(self.rnn(self.words(x))[0])

    cross_entropy = nn.functional.cross_entropy
    return Tagger(), lambda f: cross_entropy(f(given.whole(100, 8, 12)).reshape(-1, 9), given.whole(9, 96))


def gpt(T: Any, given: Given) -> Program:
    nn = T.nn

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.out = nn.Embedding(64, 32), nn.Embedding(16, 32), nn.Linear(32, 64)
            options = {"dropout": 0.1, "batch_first": True, "norm_first": True}
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, **options) for _ in range(2))
            self.register_buffer("mask", T.triu(T.ones(16, 16, dtype=T.bool), 1))

        def forward(self, x: Any) -> Any:
            h = self.words(x) + self.places(T.arange(16))
            for layer in self.layers:
                h = layer(h, src_mask=self.mask)
            return self.out(h)

    cross_entropy = nn.functional.cross_entropy
    return Model(), lambda f: cross_entropy(f(given.whole(64, 8, 16)).view(-1, 64), given.whole(64, 128))


def vae(T: Any, given: Given) -> Program:
    nn = T.nn

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.read, self.mean, self.spread = nn.Linear(64, 64), nn.Linear(64, 8), nn.Linear(64, 8)
            self.write = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())

        def forward(self, x: Any) -> Any:
            h = self.read(x).relu()
            mean, log_var = self.mean(h), self.spread(h)
            return self.write(mean + T.randn_like(mean) * (0.5 * log_var).exp()), mean, log_var

    def loss(f: Any) -> Any:
        x = given.floats(32, 64).sigmoid()
        y, mean, log_var = f(x)
        error = nn.functional.binary_cross_entropy(y, x, reduction="sum")
        return error - 0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum()

    return Model(), loss


def unet(T: Any, given: Given) -> Program:
    nn = T.nn

    def block(a: int, b: int) -> Any:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU())

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.up = block(1, 8), block(8, 16), block(16, 8), nn.ConvTranspose2d(16, 16, 2, 2)
            self.out = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            a = self.a(x)
            b = self.c(self.up(self.b(nn.functional.max_pool2d(a, 2))))
            return self.out(T.cat([a, b], 1))

    return Model(), lambda f: nn.functional.mse_loss(f(given.floats(4, 1, 16, 16)), given.floats(4, 1, 16, 16))


def gnn(T: Any, given: Given) -> Program:
    nn = T.nn
    source, target = given.whole(40, 200), given.whole(40, 200)

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.b(T.zeros(40, 16).index_add(0, target, self.a(x)[source]).relu())

    return Model(), lambda f: nn.functional.cross_entropy(f(given.floats(40, 8)), given.whole(4, 40))


PROGRAMS: dict[str, Callable[[Any, Given], Program]] = {
    program.__name__: program for program in (mlp, cnn, lstm, gpt, vae, unet, gnn)
}


def measured(name: str, system: str, steps: int) -> dict[str, Any]:
    """The time of each part of a step, and how many calls of the model were native."""
    T = importlib.import_module("autojit" if system == "autojit" else "torch")
    T.set_num_threads(1)
    T.manual_seed(0)
    model, loss_of = PROGRAMS[name](T, Given(T))
    compiled = T.jit(model) if system == "autojit" else T.compile(model) if system == "compile" else model
    optimizer = T.optim.AdamW(model.parameters(), 1e-3)
    times = []
    for _ in range(steps):
        marks = [time.process_time()]
        optimizer.zero_grad()
        loss = loss_of(compiled)
        marks.append(time.process_time())
        loss.backward()
        marks.append(time.process_time())
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        marks.append(time.process_time())
        times.append([*np.diff(marks), marks[-1] - marks[0]])
    found: list[float] = (1e6 * np.quantile(np.array(times[steps // 2 :]), 0.25, axis=0)).tolist()
    native = compiled.stats()["native_calls"] if system == "autojit" else None
    return {**dict(zip(PARTS, found, strict=True)), "native": native}


def main() -> None:
    """Print the table, or what one process has measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="names, separated by commas")
    parser.add_argument("--peer", default="torch", choices=("torch", "compile"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measured(options.only, options.worker, options.steps)))
        return
    one = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    print(f"{'us':6s}" + "".join(f"{part:>22s}" for part in PARTS) + f"{'ratio':>8s}  native calls")
    ratios = []
    for name in options.only.split(","):
        found = []
        for system in ("autojit", options.peer):
            command = [sys.executable, "-m", "benchmarks.compiled_models", "--only", name, "--worker", system]
            run = subprocess.run([*command, "--steps", str(options.steps)], env=one, capture_output=True, text=True)
            found.append(json.loads(run.stdout.splitlines()[-1]))
        ours, theirs = found
        ratios.append(theirs["all"] / ours["all"])
        times = "".join(f"{ours[part]:11.0f} ({theirs[part]:8.0f})" for part in PARTS)
        print(f"{name:6s}{times}{ratios[-1]:8.2f}  {ours['native']} of {options.steps}", flush=True)
    print(f"geometric mean of the ratios ({options.peer} / autojit): {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()
