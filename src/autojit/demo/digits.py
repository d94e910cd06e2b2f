"""Handwritten digits as arrays: images flattened to [0, 1], labels 0 to 9, and which part is held out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import ArgumentError
from autojit.core.records import record
from autojit.demo.idx import find, read_idx

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_OUT = 0.2  # share of a set that has no test part of its own
SPLIT_SEED = 0


@record
class Digits:
    """``images`` f32[n, pixels] in [0, 1] and ``labels`` i64[n], for training and held out."""

    name: str
    images: NDArray[Any]
    labels: NDArray[Any]
    held_out_images: NDArray[Any]
    held_out_labels: NDArray[Any]

    @property
    def pixels(self) -> int:
        return int(self.images.shape[1])

    def describe(self) -> str:
        kept, held_out = len(self.labels), len(self.held_out_labels)
        return f"{self.name}: {kept} digits of {self.pixels} pixels to train on, {held_out} held out"


def bundled_digits() -> Digits:
    """The 1,797 digits of 8x8 pixels that come with scikit-learn; a fifth held out, chosen by a fixed seed.

    Raises:
        ArgumentError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ArgumentError(
            "demo: scikit-learn, whose digits are the default data set, is not installed",
            fix="pip install 'autojit[examples]', or give MNIST's idx files with --data DIR",
        ) from None
    images, labels = load_digits(return_X_y=True)
    return _split("scikit-learn digits", images, labels, brightest=16.0)


def mnist(directory: Path) -> Digits:
    """MNIST from idx files: the training and test halves where both are there, else the one half, split.

    Raises:
        ArgumentError: the directory or the files are missing or damaged, or do not belong together.
    """
    if not directory.is_dir():
        raise ArgumentError("demo: --data is not a directory", {"given": directory})
    halves = {prefix: half for prefix in ("train", "t10k") if (half := _half(directory, prefix)) is not None}
    if not halves:
        present = ", ".join(sorted(path.name for path in directory.iterdir())[:8]) or "nothing"
        raise ArgumentError(
            "demo: no MNIST files in --data",
            {"directory": directory, "wanted": "t10k-images-idx3-ubyte[.gz], t10k-labels-idx1-ubyte[.gz] "
             "and, if there, the same of train", "found": present},
        )  # fmt: skip
    if len(halves) == 1:
        ((prefix, (images, labels)),) = halves.items()
        return _split(f"MNIST ({prefix} files)", images, labels, brightest=255.0)
    (images, labels), (held_out_images, held_out_labels) = halves["train"], halves["t10k"]
    return Digits(
        "MNIST", _flat(images, 255.0), _labels(labels), _flat(held_out_images, 255.0), _labels(held_out_labels)
    )


def _half(directory: Path, prefix: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
    images_path = find(directory, f"{prefix}-images-idx3-ubyte")
    labels_path = find(directory, f"{prefix}-labels-idx1-ubyte")
    if images_path is None and labels_path is None:
        return None
    if images_path is None or labels_path is None:
        raise ArgumentError(
            "demo: images and labels must come together", {"found only": images_path or labels_path, "in": directory}
        )
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        facts = {images_path.name: images.shape, labels_path.name: labels.shape}
        raise ArgumentError("demo: images and labels do not belong together", facts)
    return images, labels


def _split(name: str, images: NDArray[Any], labels: NDArray[Any], brightest: float) -> Digits:
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    images, labels = _flat(images, brightest)[order], _labels(labels)[order]
    kept = len(labels) - round(HELD_OUT * len(labels))
    return Digits(name, images[:kept], labels[:kept], images[kept:], labels[kept:])


def _flat(images: NDArray[Any], brightest: float) -> NDArray[Any]:
    return (images.reshape(len(images), -1) / brightest).astype(np.float32)


def _labels(labels: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(labels, dtype=np.int64)
