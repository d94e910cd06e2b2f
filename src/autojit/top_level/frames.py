"""Short-time Fourier transforms: the spectra of overlapping frames of a signal, and the signal from them.

Composites of views, products and ``fft``: differentiable to every order in the signal and the window, and compiled.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from autojit import fft
from autojit.core.device_array import host_copy
from autojit.core.errors import ShapeError, UsageError
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import declared
from autojit.functions.factories import arange
from autojit.functions.index_functions import index_add
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.views import view_as_real
from autojit.nn.functional.padding import pad
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

_MOST_PARTS = 16  # frames that overlap in a sample; more are added by index
_LEAST_COVER = 1e-11  # torch's


class _Frames(NamedTuple):
    """How a signal is cut into frames: points, distance, points of the window."""

    points: int
    hop: int
    window: int


def _frames(n_fft: int, hop_length: int | None, win_length: int | None) -> _Frames:
    hop = n_fft // 4 if hop_length is None else hop_length
    return _Frames(n_fft, hop, n_fft if win_length is None else win_length)


def _asked(x: Tensor, frames: _Frames, what: str) -> UsageError:
    facts = {"input": x, "n_fft": frames.points, "hop_length": frames.hop, "win_length": frames.window}
    return UsageError(what, facts)


@declared()
@no_view_of_parts
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The transforms of ``n_fft`` points every ``hop_length`` samples, each frame times the window.

    Shapes: ``[(b,) samples] -> c[(b,) n_fft // 2 + 1, frames]``; all ``n_fft`` frequencies if not ``onesided``, which
    complex signals never are; a last axis of two parts unless ``return_complex``.

    Args:
        hop_length: a quarter of ``n_fft`` by default.
        win_length: the length of the window, padded with zeros on both sides to ``n_fft``.
        center: pad the signal by ``n_fft // 2`` on both sides, so that a frame's time is its middle.
        align_to_window: without ``center``, pad so that the first frame's window begins with the signal.

    Raises:
        RuntimeError: sizes that do not fit, a one-sided transform of complex numbers, or ``return_complex`` is not
            given for a real signal.

    Example:
        >>> import autojit as aj
        >>> aj.stft(aj.ones(4), 4, 2, window=aj.ones(4), center=False, return_complex=True)
        tensor([[4.+0.j],
                [0.+0.j],
                [0.+0.j]])
    """
    frames = _frames(n_fft, hop_length, win_length)
    if center and align_to_window is not None:
        raise UsageError("stft align_to_window should only be set when center = false")
    _require_real_answer(input, window, return_complex)
    x = _signals(input, frames, (center, pad_mode, bool(align_to_window)))
    _require_sizes(x, frames, window)
    cut = x.unfold(1, n_fft, frames.hop)  # (b, frames, n_fft)
    weights = _weights(x, frames, window)
    weighted = cut if weights is None else cut * weights
    norm = "ortho" if normalized else "backward"
    is_complex = type_of(weighted).dtype.is_complex
    if is_complex and onesided:
        raise UsageError("Cannot have onesided output if window or input is complex", {"input": input})
    half = onesided is not False and not is_complex
    found: Tensor = (fft.rfft if half else fft.fft)(weighted, dim=-1, norm=norm).transpose(1, 2)
    found = found.squeeze(0) if type_of(input).ndim == 1 else found
    return view_as_real(found.contiguous()) if return_complex is False else found


def _signals(input: Tensor, frames: _Frames, how: tuple[bool, str, bool]) -> Tensor:
    """Signals as rows, padded on both sides if frames are centred, or the first window is to begin with the signal."""
    spec, (center, pad_mode, is_aligned) = type_of(input), how
    if spec.dtype.category < 2:
        raise _asked(input, frames, "stft: expected a tensor of floating point or complex values")
    if spec.ndim not in (1, 2):
        raise _asked(input, frames, "stft: expected a 1D or 2D tensor")
    x = input if spec.ndim == 2 else input.unsqueeze(0)
    width, mode = (frames.points // 2, pad_mode) if center else ((frames.points - frames.window) // 2, "constant")
    is_padded = center or (is_aligned and frames.window < frames.points)
    return pad(x.unsqueeze(0), (width, width), mode).squeeze(0) if is_padded else x


def _require_real_answer(x: Tensor, window: Tensor | None, return_complex: bool | None) -> None:
    if window is None:
        warn(
            "stft: a window was not provided. A rectangular window will be applied, which is known to cause spectral "
            "leakage. Pass hann_window(win_length) or another, or ones(win_length) to mean it.",
            UserWarning,
        )
    is_complex = type_of(x).dtype.is_complex or (window is not None and type_of(window).dtype.is_complex)
    if return_complex is None and not is_complex:
        raise UsageError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future PyTorch release.",
            {"input": x},
            "pass return_complex=True",
        )
    if return_complex is False:
        warn(
            "stft with return_complex=False is deprecated: pass return_complex=True and use view_as_real on the result",
            UserWarning,
        )


def _require_sizes(x: Tensor, frames: _Frames, window: Tensor | None) -> None:
    samples = type_of(x).shape[1]
    if not 0 < frames.points <= samples:
        raise _asked(x, frames, f"stft: expected 0 < n_fft < {samples}, but got n_fft={frames.points}")
    if frames.hop <= 0:
        raise _asked(x, frames, f"stft: expected hop_length > 0, but got hop_length={frames.hop}")
    if not 0 < frames.window <= frames.points:
        raise _asked(x, frames, f"stft: expected 0 < win_length <= n_fft, but got win_length={frames.window}")
    if window is not None and tuple(type_of(window).shape) != (frames.window,):
        raise ShapeError(
            f"stft: expected a 1D window tensor of size equal to win_length={frames.window}, but got window with size "
            f"{list(type_of(window).shape)}",
            {"window": window},
        )


def _ones(x: Tensor, frames: _Frames) -> Tensor:
    """The window that leaves everything as it is."""
    return x.new_ones((frames.window,), dtype=type_of(x).dtype.to_real())


def _weights(x: Tensor, frames: _Frames, window: Tensor | None) -> Tensor | None:
    """The window with zeros on both sides up to the points of a frame; None means ones."""
    missing = frames.points - frames.window
    if missing == 0:
        return window
    given = _ones(x, frames) if window is None else window
    return pad(given, (missing // 2, missing - missing // 2))


@declared()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose ``stft`` is nearest to ``input``: frames are weighted again, added, divided by the windows' sum.

    Shapes: ``c[(b,) n_fft // 2 + 1, frames] -> f[(b,) samples]``. ``length`` cuts the signal or pads it with zeros.

    Raises:
        RuntimeError: sizes that do not fit, or samples that no window covers (of a window whose elements are known;
            inside a compiled step one that is computed there gives infinite or NaN samples).

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([1.0, 2.0, 3.0, 4.0])
        >>> w = aj.ones(2)
        >>> aj.istft(aj.stft(x, 2, 1, window=w, return_complex=True), 2, 1, window=w)
        tensor([1., 2., 3., 4.])
    """
    frames = _frames(n_fft, hop_length, win_length)
    half = _require_spectra(input, frames, onesided)
    _require_window(input, frames, window)
    spectra = (input if type_of(input).ndim == 3 else input.unsqueeze(0)).transpose(1, 2)  # (b, frames, frequencies)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        if half:
            raise UsageError("Cannot have onesided output if window or input is complex", {"input": input})
        signals = fft.ifft(spectra, dim=-1, norm=norm)
    else:
        if window is not None and type_of(window).dtype.is_complex:
            raise UsageError("Complex windows are incompatible with return_complex=False", {"window": window})
        signals = fft.irfft(spectra if half else spectra[..., : n_fft // 2 + 1], n=n_fft, dim=-1, norm=norm)
    found = _added_up(signals, frames, window, (n_fft // 2 if center else 0, center, length))
    return found if type_of(input).ndim == 3 else found.squeeze(0)


def _require_spectra(x: Tensor, frames: _Frames, onesided: bool | None) -> bool:
    """Whether the spectra are halves, after checking their sizes."""
    spec = type_of(x)
    if not spec.dtype.is_complex:
        raise _asked(
            x, frames, "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )  # fmt: skip
    if spec.size == 0:
        raise _asked(x, frames, "istft: input tensor cannot be empty.")
    if spec.ndim not in (2, 3):
        raise _asked(x, frames, f"istft: expected a tensor with 2 or 3 dimensions, but got {spec.ndim}")
    frequencies = spec.shape[-2]
    half = frequencies != frames.points if onesided is None else onesided
    expected = frames.points // 2 + 1 if half else frames.points
    if frequencies != expected:
        wanted = "n_fft / 2 + 1 when onesided=True" if half else "n_fft when onesided=False"
        raise _asked(
            x, frames,
            f"istft: expected the frequency dimension (2nd to the last) of the input tensor to match {wanted}, but got "
            f"{frequencies}",
        )  # fmt: skip
    return half


def _require_window(x: Tensor, frames: _Frames, window: Tensor | None) -> None:
    if not 0 < frames.hop <= frames.window:
        raise _asked(x, frames, "istft: expected 0 < hop_length <= win_length")
    if not 0 < frames.window <= frames.points:
        raise _asked(x, frames, "istft: expected 0 < win_length <= n_fft")
    if window is None:
        warn(
            "istft: a window was not provided. A rectangular window will be applied. Pass the window that stft used.",
            UserWarning,
        )
    elif tuple(type_of(window).shape) != (frames.window,):
        raise ShapeError(
            "istft: Invalid window shape. window has to be 1D and length of `win_length`", {"window": window}
        )


def _added_up(signals: Tensor, frames: _Frames, window: Tensor | None, part: tuple[int, bool, int | None]) -> Tensor:
    """The frames at their places, over the sum of the squared windows; the asked part of the whole."""
    start, center, length = part
    count = type_of(signals).shape[1]
    whole = frames.points + frames.hop * (count - 1)
    end = start + length if length is not None else whole - start if center else whole
    weights = _weights(signals, frames, _ones(signals, frames) if window is None else window)
    assert weights is not None
    cover = _overlap((weights * weights).expand(1, count, frames.points), frames.hop)[:, start:end]
    _require_cover(window, frames, count, (start, min(end, whole)))
    y = _overlap(signals * weights, frames.hop)[:, start:end] / cover
    if end <= whole:
        return y
    warn("istft: the signal is shorter than length; it is padded with zeros. Check center and hop_length.", UserWarning)
    return pad(y, (0, end - whole))


def _require_cover(window: Tensor | None, frames: _Frames, count: int, part: tuple[int, int]) -> None:
    if window is not None and window._array is None:
        return
    weights = np.zeros(frames.points)
    left = (frames.points - frames.window) // 2
    weights[left : left + frames.window] = 1.0 if window is None else np.abs(host_copy(window._array)) ** 2
    cover = np.zeros(frames.points + frames.hop * (count - 1))
    for k in range(count):
        cover[k * frames.hop : k * frames.hop + frames.points] += weights
    least = cover[part[0] : part[1]]
    if least.size and least.min() < _LEAST_COVER:
        raise UsageError(
            "istft: window overlap add min: 1; some samples are covered by no window",
            {"window": window, "hop_length": frames.hop},
            "use a window without zeros at its ends, center=True, or a smaller hop_length",
        )


def _overlap(frames: Tensor, hop: int) -> Tensor:
    """``[b, frames, points] -> [b, samples]``: the frames added where they are, ``hop`` apart. Linear."""
    batch, count, points = type_of(frames).shape
    samples = points + hop * (count - 1)
    parts = -(-points // hop)
    if parts > _MOST_PARTS:
        place = type_of(frames).device
        places = (arange(count, device=place)[:, None] * hop + arange(points, device=place)).reshape(-1)
        return index_add(frames.new_zeros((batch, samples)), 1, places, frames.reshape(batch, -1))
    pieces = pad(frames, (0, parts * hop - points)).reshape(batch, count, parts, hop)
    lines = [  # the k-th pieces of all frames do not overlap
        pad(pieces[:, :, k].reshape(batch, count * hop), (k * hop, (parts - 1 - k) * hop)) for k in range(parts)
    ]
    return reduce(add, lines)[:, :samples]
