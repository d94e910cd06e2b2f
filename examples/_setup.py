"""What the examples share: their options, the bundled digits, and initial weights that any library can reproduce.

Nothing here imports autojit, so that the same lines serve a program whose imports were changed (``_torch.py``).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

Curve = list[float]
results: dict[str, Any] = {}  # of the example that ran last: what tools/make_gallery.py draws


def show(**found: Any) -> None:
    """Hand what a program has found to whoever draws it; on its own a program only prints."""
    results.clear()
    results.update(found)


def program(description: str, **further: dict[str, Any]) -> Callable[[Callable[..., Curve]], Callable[..., Curve]]:
    """Give a ``main`` the options ``--steps``, ``--small``, ``--eager``, ``--device`` and further ones, as a namespace.

    The tensors that it makes without naming a device are on that of ``--device``. What a ``main`` asserts of its
    training holds for its own number of steps; with ``--steps`` it is not asked for.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--small", action="store_true", help="a smaller problem and few steps")
    parser.add_argument("--eager", action="store_true", help="without compiling")
    parser.add_argument("--device", default="cpu", help="where tensors are: cpu or cuda")
    for name, how in further.items():
        parser.add_argument(f"--{name}", **how)

    def decorate(main: Callable[..., Curve]) -> Callable[..., Curve]:
        @wraps(main)
        def run(arguments: list[str] | None = None) -> Curve:
            options = parser.parse_args(arguments)
            with main.__globals__["aj"].device(options.device):
                return main(options)

        return run

    return decorate


def initialize(model: Any, seed: int = 0) -> Any:
    """The model, its matrices and kernels drawn by NumPy with variance ``1 / fan_in``; vectors are 0, or stay 1."""
    rng = np.random.default_rng(seed)
    for parameter in model.parameters():
        host = parameter.detach().cpu()  # the parameter's own memory if it is on the CPU
        array = host.numpy()
        if array.ndim > 1:
            array[...] = rng.normal(size=array.shape) / np.sqrt(np.prod(array.shape[1:]))
        elif not (array == 1).all():
            array[...] = 0
        parameter.detach().copy_(host)
    return model


def digits() -> tuple[np.ndarray, np.ndarray]:
    """``f32[1797, 1, 8, 8]`` in [0, 1] and ``i64[1797]``: scikit-learn's handwritten digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SystemExit(
            "The handwritten digits are scikit-learn's: pip install scikit-learn (or autojit[examples])"
        ) from error
    images, labels = load_digits(return_X_y=True)
    return (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32), labels.astype(np.int64)
