"""Bars count what they are given; pictures are the tensors' values, as PNG that a reader of PNG reads."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError
from autojit.utils.images import Image, png
from autojit.utils.progress_bar import PlainBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_hands_on_what_it_is_given_and_counts() -> None:
    stream = io.StringIO()
    bar = PlainBar([3, 1, 2], desc="eager", file=stream)
    assert list(bar) == [3, 1, 2]
    assert (bar.n, len(bar)) == (3, 3)
    assert stream.getvalue().startswith("eager")
    assert "3/3" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_a_bar_on_a_terminal_draws_over_itself_and_shows_what_comes_behind() -> None:
    stream = Terminal()
    with PlainBar[int](total=4, file=stream) as bar:
        bar.set_description("loss")
        bar.set_postfix(loss=0.123456, refresh=False, step="last")
        bar.update(2)
        bar.update(2)
    assert "loss 0.1235  step last" in stream.getvalue()
    assert stream.getvalue().startswith("\r")
    assert stream.getvalue().endswith("\n")


def test_a_bar_without_an_end_counts_and_one_that_is_off_is_silent() -> None:
    stream = io.StringIO()
    assert sum(PlainBar((k for k in range(5)), file=stream)) == 10
    assert "5 done" in stream.getvalue()
    silent = io.StringIO()
    assert len(list(PlainBar(range(3), file=silent, disable=True))) == 3
    assert silent.getvalue() == ""
    with pytest.raises(TypeError, match="total="):
        len(PlainBar(k for k in range(2)))


def test_a_loop_that_breaks_closes_its_bar() -> None:
    stream = io.StringIO()
    for item in PlainBar(range(9), file=stream):
        if item == 4:
            break
    assert "4/9" in stream.getvalue()


def test_progress_is_tqdm_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def tqdm(*args: Any, **kwargs: Any) -> Any:
            return ("tqdm", args, kwargs)

    monkeypatch.setitem(sys.modules, "tqdm", Module)
    monkeypatch.setitem(sys.modules, "tqdm.auto", Module)
    assert aj.utils.progress([1], desc="d", total=1) == ("tqdm", ([1],), {"desc": "d", "total": 1, "disable": False})
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert isinstance(aj.utils.progress([1]), PlainBar)


def pixels_of(data: bytes) -> Any:
    """A small reader of PNG, by its specification."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, head, packed = 8, b"", b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        head, packed = (body if kind == b"IHDR" else head), packed + (body if kind == b"IDAT" else b"")
        at += 12 + size
    width, height, depth, color = struct.unpack(">IIBB", head[:10])
    channels = {0: 1, 4: 2, 2: 3, 6: 4}[color]
    assert depth == 8
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_png_holds_the_pixels(channels: int, tmp_path: Path) -> None:
    x = aj.from_numpy(np.random.default_rng(0).integers(0, 256, (channels, 5, 7)).astype(np.uint8))
    made = aj.utils.image(x)
    np.testing.assert_array_equal(pixels_of(png(made.pixels)), x.numpy().transpose(1, 2, 0))
    made.save(tmp_path / "x.png")
    np.testing.assert_array_equal(pixels_of((tmp_path / "x.png").read_bytes()), made.pixels)
    assert pixels_of(made._repr_png_()).shape[0] % 5 == 0


def test_values_go_from_black_to_white() -> None:
    assert aj.utils.image(aj.tensor([[0.0, 0.5, 1.0]])).pixels.ravel().tolist() == [0, 128, 255]
    assert aj.utils.image(aj.tensor([[-1.0, 0.0, 3.0]])).pixels.ravel().tolist() == [0, 64, 255]
    assert aj.utils.image(aj.tensor([[2.0, 4.0]]), low=0, high=4).pixels.ravel().tolist() == [128, 255]
    assert aj.utils.image(aj.tensor([[True, False]])).pixels.ravel().tolist() == [255, 0]
    odd = aj.tensor([[float("nan"), float("inf"), -float("inf"), 0.5]])
    assert aj.utils.image(odd).pixels.ravel().tolist() == [0, 255, 0, 128]
    assert aj.utils.image(aj.full((2, 2), 7.0)).pixels.max() == 0
    assert aj.utils.image(aj.rand(3, 4, 5, dtype=aj.float64).permute(0, 2, 1).requires_grad_()).pixels.shape == (
        5,
        4,
        3,
    )


def test_a_grid_shows_every_picture_once() -> None:
    x = aj.arange(5).reshape(5, 1, 1, 1).expand(5, 3, 2, 2).to(aj.uint8)
    made = aj.utils.image_grid(x, columns=2)
    assert isinstance(made, Image)
    assert made.pixels.shape == (8, 5, 3)
    assert [made.pixels[3 * (k // 2), 3 * (k % 2), 0] for k in range(5)] == list(range(5))
    assert aj.utils.image_grid(aj.rand(4, 6, 6)).pixels.shape == (13, 13, 1)


def test_what_is_no_picture_is_refused() -> None:
    for shape in ((), (3,), (5, 2, 2), (0, 4), (1, 3, 4, 4)):
        with pytest.raises(ShapeError, match="picture"):
            aj.utils.image(aj.ones(shape))
    with pytest.raises(ShapeError, match="batch"):
        aj.utils.image_grid(aj.ones(2, 2))
    with pytest.raises(ArgumentError, match="columns"):
        aj.utils.image_grid(aj.ones(2, 2, 2), columns=0)
    with pytest.raises(ArgumentError, match="complex"):
        aj.utils.image(aj.ones(2, 2, dtype=aj.complex64))
