"""Tensors as pictures: ``image(x)`` of one, ``image_grid(x)`` of many; notebooks show them, ``save`` writes PNG.

Nothing is needed to write a PNG but ``zlib``, so no library is.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import ArgumentError, ShapeError
from autojit.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG's color type: grey, grey and alpha, RGB, RGBA
LEAST_SHOWN = 160  # pixels that a small picture is enlarged to, each pixel a square


class Image:
    """A picture of ``rows x columns x channels`` bytes."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.pixels = pixels

    def _repr_png_(self) -> bytes:
        scale = max(1, LEAST_SHOWN // max(1, *self.pixels.shape[:2]))
        return png(self.pixels.repeat(scale, 0).repeat(scale, 1))

    def __repr__(self) -> str:
        rows, columns, channels = self.pixels.shape
        return f"<image of {rows} x {columns} pixels, {channels} channel(s)>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as a PNG file."""
        with open(path, "wb") as file:
            file.write(png(self.pixels))


def image(x: Tensor, low: float | None = None, high: float | None = None) -> Image:
    """A picture of a tensor, which a notebook shows.

    Args:
        x: ``[H, W]``, or ``[C, H, W]`` with 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) channels. Floats, bools
            and wider integers go from black at ``low`` to white at ``high``, uint8 is taken as it is. NaN is black.
        low, high: 0 and 1 where all values are between them, else the least and the greatest finite value.

    Raises:
        ShapeError: the tensor has another shape.

    Example:
        >>> import autojit as aj
        >>> aj.utils.image(aj.eye(3))
        <image of 3 x 3 pixels, 1 channel(s)>
    """
    array = _array(x)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[0] not in KINDS or not array.size:
        raise ShapeError(
            "image: the tensor is not a picture",
            {"x": x, "expected": "[H, W] or [C, H, W] with 1 to 4 channels, not empty"},
            "choose one of a batch, x[0], or show all with image_grid(x); permute channels to the front",
        )
    return Image(_bytes(array, low, high).transpose(1, 2, 0))


def image_grid(x: Tensor, columns: int | None = None, low: float | None = None, high: float | None = None) -> Image:
    """Pictures side by side, with the same black and white.

    Args:
        x: ``[N, C, H, W]`` or ``[N, H, W]``, see `image`.
        columns: how many there are in a row; about as many as rows if not given.
        low, high: see `image`.

    Raises:
        ShapeError: the tensor has another shape.
        ArgumentError: ``columns`` is less than 1.

    Example:
        >>> import autojit as aj
        >>> aj.utils.image_grid(aj.rand(6, 3, 8, 8), columns=3)
        <image of 17 x 26 pixels, 3 channel(s)>
    """
    array = _array(x)
    array = array[:, None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[1] not in KINDS or not array.size:
        raise ShapeError(
            "image_grid: the tensor is not a batch of pictures", {"x": x, "expected": "[N, C, H, W] or [N, H, W]"}
        )
    if columns is not None and columns < 1:
        raise ArgumentError("image_grid: columns is at least 1", {"columns": columns}, "leave it out")
    count, channels, height, width = array.shape
    across = min(count, columns or math.ceil(math.sqrt(count)))
    down = math.ceil(count / across)
    shown = _bytes(array, low, high)
    made = np.full((channels, down * (height + 1) - 1, across * (width + 1) - 1), 128, np.uint8)
    for place in range(count):
        row, column = divmod(place, across)
        y, x0 = row * (height + 1), column * (width + 1)
        made[:, y : y + height, x0 : x0 + width] = shown[place]
    return Image(made.transpose(1, 2, 0))


def _array(x: Tensor) -> NDArray[Any]:
    if x.is_complex():
        raise ArgumentError("image: a tensor of real numbers is shown", {"x": x}, "take x.abs() of complex numbers")
    found: NDArray[Any] = x.detach().cpu().numpy()
    return found if found.dtype == np.uint8 else found.astype(np.float64)


def _bytes(array: NDArray[Any], low: float | None, high: float | None) -> NDArray[np.uint8]:
    if array.dtype == np.uint8 and low is None and high is None:
        return array
    array = array.astype(np.float64)
    finite = array[np.isfinite(array)]
    is_usual = finite.size == 0 or bool((finite >= 0).all() and (finite <= 1).all())
    black = (0.0 if is_usual else float(finite.min())) if low is None else low
    white = (1.0 if is_usual else float(finite.max())) if high is None else high
    scaled = (array - black) / (1.0 if white == black else white - black)
    return (np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=0.0).clip(0, 1) * 255 + 0.5).astype(np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels, ``[rows, columns, channels]``, as a PNG file."""
    rows, columns, channels = pixels.shape
    head = struct.pack(">IIBBBBB", columns, rows, 8, KINDS[channels], 0, 0, 0)
    lines = np.zeros((rows, 1 + columns * channels), np.uint8)  # each begins with its filter, which is none
    lines[:, 1:] = np.ascontiguousarray(pixels).reshape(rows, -1)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
