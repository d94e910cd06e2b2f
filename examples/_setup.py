"""What the examples share: their options, the bundled digits, and initial weights that any library can reproduce.

Nothing here imports autojit, so that the same lines serve a program whose imports were changed (``_torch.py``).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np


def options(description: str, arguments: list[str] | None) -> argparse.Namespace:
    """``--steps N``, ``--small`` and ``--eager``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--small", action="store_true", help="a smaller model and few steps")
    parser.add_argument("--eager", action="store_true", help="without compiling")
    return parser.parse_args(arguments)


def initialize(model: Any, seed: int = 0) -> Any:
    """The model, its matrices and kernels drawn by NumPy with variance ``1 / fan_in``; vectors are 0, or stay 1."""
    rng = np.random.default_rng(seed)
    for parameter in model.parameters():
        array = parameter.detach().numpy()  # shares memory with the parameter
        if array.ndim > 1:
            array[...] = rng.normal(size=array.shape) / np.sqrt(np.prod(array.shape[1:]))
        elif not (array == 1).all():
            array[...] = 0
    return model


def digits() -> tuple[np.ndarray, np.ndarray]:
    """``f32[1797, 1, 8, 8]`` in [0, 1] and ``i64[1797]``: scikit-learn's handwritten digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32), labels.astype(np.int64)
