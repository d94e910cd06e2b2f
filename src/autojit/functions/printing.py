"""How tensors print: in torch's format, ``tensor([1.], requires_grad=True)``; in notebooks as tables of numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from html import escape
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU, META
from autojit.core.device_array import host_copy
from autojit.core.dtypes import bool_, default_dtype, int64
from autojit.core.errors import ArgumentError, DifferentiationError
from autojit.core.top_level import top_level
from autojit.history.recording import require_unchanged, wants_grad
from autojit.tensor.state import below, state
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PrintOptions:
    """``set_printoptions``: digits, elements before summarising, elements at the edges, characters per line."""

    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": sys.maxsize, "edgeitems": 3, "linewidth": 80},
}


@top_level
def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print."""
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    if profile is not None and profile not in _PROFILES:
        raise ArgumentError(
            f"set_printoptions: there is no profile {profile!r}", {}, 'one of "default", "short", "full"'
        )
    for name, value in {} if profile is None else _PROFILES[profile].items():
        setattr(PrintOptions, name, value)
    for name, value in given.items():
        if value is not None:
            setattr(PrintOptions, name, value)
    PrintOptions.sci_mode = sci_mode


class _Numbers:
    """Formats the numbers of one tensor alike: width and notation are chosen from all that are shown."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.is_float = values.dtype.kind == "f"
        finite = values[np.isfinite(values) & (values != 0)] if self.is_float else values
        self.whole = self.is_float and bool(finite.size == 0 or np.all(finite == np.ceil(finite)))
        self.scientific = self.is_float and finite.size > 0 and self._is_wide(np.abs(finite))
        if PrintOptions.sci_mode is not None and self.is_float:
            self.scientific = PrintOptions.sci_mode
        self.width = max((len(self._text(v)) for v in finite.ravel()), default=1)  # as torch: of no others

    def _is_wide(self, sizes: NDArray[Any]) -> bool:
        low, high = float(sizes.min()), float(sizes.max())
        if self.whole:
            return high / low > 1000.0 or high > 1.0e8
        return high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4

    def _text(self, value: Any) -> str:
        if not self.is_float:
            return str(value)
        if not np.isfinite(value):
            return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
        if self.scientific:
            return f"{value:.{PrintOptions.precision}e}"
        return f"{value:.0f}." if self.whole else f"{value:.{PrintOptions.precision}f}"

    def __call__(self, value: Any) -> str:
        return self._text(value).rjust(self.width)


class _ComplexNumbers:
    """Formats complex numbers alike: their parts as `_Numbers` does."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._real, self._imag = _Numbers(values.real), _Numbers(np.abs(values.imag))
        self.width = self._real.width + _Numbers(values.imag).width + 1

    def __call__(self, value: Any) -> str:
        sign = "-" if np.signbit(value.imag) else "+"
        return f"{self._real(value.real)}{sign}{self._imag(np.abs(value.imag)).strip()}j"


def _lines(array: NDArray[Any], text: _Numbers | _ComplexNumbers, indent: int, summary: bool) -> str:
    if array.ndim == 0:
        return str(text(array[()]))
    edge = PrintOptions.edgeitems
    cut = summary and array.shape[0] > 2 * edge
    rows = [*range(edge), None, *range(array.shape[0] - edge, array.shape[0])] if cut else [*range(array.shape[0])]
    if array.ndim == 1:
        parts = [" ..." if k is None else str(text(array[k])) for k in rows]
        return _wrapped(parts, indent, text.width)
    parts = ["..." if k is None else _lines(array[k], text, indent + 1, summary) for k in rows]
    apart = "," + "\n" * int(array.ndim - 1) + " " * (indent + 1)
    return f"[{apart.join(parts)}]"


def _wrapped(parts: list[str], indent: int, width: int) -> str:
    per_line = max(1, int((PrintOptions.linewidth - indent) // (width + 2)))  # numbers that are none may take more
    lines = [", ".join(parts[k : k + per_line]) for k in range(0, max(len(parts), 1), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _shown(array: NDArray[Any], summary: bool) -> Any:
    """The elements that will be printed, for choosing the notation."""
    if not summary or array.ndim == 0:
        return array
    edge = PrintOptions.edgeitems
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            array = np.take(array, [*range(edge), *range(n - edge, n)], axis=axis)
    return array


def body(array: NDArray[Any], indent: int) -> str:
    """The nested brackets."""
    array = _printable(array)
    return _lines(array, number_format(array), indent, array.size > PrintOptions.threshold)


def _printable(array: NDArray[Any]) -> Any:
    small = array.dtype.kind == "V" or array.dtype == np.float16 or array.dtype.name == "bfloat16"
    return array.astype(np.float32) if small else array


def number_format(array: NDArray[Any]) -> Any:
    """The function that writes an element of the array as all that are shown are written."""
    shown = _shown(_printable(array), array.size > PrintOptions.threshold)
    return _ComplexNumbers(shown) if array.dtype.kind == "c" else _Numbers(shown)


def to_text(self: Tensor) -> str:
    """torch's ``repr`` of a tensor; a traced one of unknown values shows its type, one of a batch all its values."""
    for level in range(len(state.layers), 0, -1):
        layer = state.layers[level - 1]
        full = layer.full(self)
        if full is not None:
            with below(layer):
                return f"BatchedTensor(lvl={level}, bdim=0, value=\n{indent(to_text(full), '    ')}\n)"
    t = type_of(self)
    suffixes = []
    array = self._array if state.trace is None else state.trace.shown(self)
    if array is None:
        return f"tensor(<{t}>)"
    if t.device == META:
        shown = "..."
        has_default = t.dtype is default_dtype()
    elif (array := host_copy(array)).size == 0:
        shown = "[]"
        if array.ndim != 1:
            suffixes.append(f"size={array.shape}")
        has_default = t.dtype is default_dtype()
    else:
        shown = body(array, len("tensor("))
        has_default = t.dtype in (default_dtype(), int64, bool_) or t.dtype is default_dtype().to_complex()
    if t.device != CPU:
        suffixes.append(f"device='{t.device}'")
    if t.device == META:
        suffixes.append(f"size={tuple(t.shape)}")
    if not has_default:
        suffixes.append(f"dtype={t.dtype!r}")
    history = _history(self)
    if history:
        suffixes.append(history)
    for layer in state.layers:
        suffixes.extend(layer.shown(self))
    return _joined("tensor(" + shown, suffixes)


def _history(t: Tensor) -> str:
    try:
        is_recorded = wants_grad(t)
        require_unchanged(t)
    except DifferentiationError:
        return "grad_fn=<Invalid>"  # a view that may not be used since its memory has changed
    if not is_recorded:
        return ""
    return "requires_grad=True" if t._grad_fn is None else f"grad_fn=<{t._grad_fn.name_of(t._output_nr)}>"


def _joined(text: str, suffixes: list[str]) -> str:
    line = len(text) - text.rfind("\n") - 1
    for suffix in suffixes:
        if line + len(suffix) + 2 > PrintOptions.linewidth:
            text += ",\n" + " " * len("tensor(") + suffix
            line = len("tensor(") + len(suffix)
        else:
            text += ", " + suffix
            line += len(suffix) + 2
    return text + ")"


# -- in notebooks

MOST_PARTS = 4  # of an array of three and more axes
_STYLE = "text-align: right; font-family: monospace"


def to_html(self: Tensor) -> str:
    """A tensor of one or two axes as a table, one of more as tables of its last two; long axes show their ends.

    Example:
        >>> import autojit as aj
        >>> print(aj.tensor([1.0, 2.5])._repr_html_())
        <div><code>tensor f32[2]</code><table style=...><tr><td>1.0000</td><td>2.5000</td></tr></table></div>
    """
    t = type_of(self)
    is_plain = type(self._array) is np.ndarray and state.trace is None and not state.layers
    if not is_plain or t.ndim == 0 or not t.size:
        return f"<pre>{escape(str(self))}</pre>"
    history = "requires_grad" if self._grad_fn is None else escape(self._grad_fn.name())
    told = f"{escape(str(t))} · {history}" if wants_grad(self) else escape(str(t))
    array = self._array
    text = number_format(array)
    if t.ndim <= 2:
        return f"<div><code>tensor {told}</code>{_table(array.reshape(-1, t.shape[-1]), text)}</div>"
    parts = [_part(array, place, text) for place in _leading(array.shape[:-2])]
    return f"<div><code>tensor {told}</code>{''.join(parts)}</div>"


def _leading(shape: tuple[int, ...]) -> list[tuple[int, ...] | None]:
    """The places in the leading axes whose last two axes are shown: the first and the last ones."""
    count = math.prod(shape)
    edge = MOST_PARTS // 2
    numbers = list(range(count)) if count <= MOST_PARTS else [*range(edge), None, *range(count - edge, count)]
    return [None if n is None else tuple(map(int, np.unravel_index(n, shape))) for n in numbers]


def _part(array: NDArray[Any], place: tuple[int, ...] | None, text: Callable[[Any], str]) -> str:
    if place is None:
        return "<div>…</div>"
    return f"<div><code>[{', '.join(map(str, place))}]</code>{_table(array[place], text)}</div>"


def _table(array: NDArray[Any], text: Callable[[Any], str]) -> str:
    rows, columns = (_places(n) for n in array.shape)
    body = "".join(f"<tr>{''.join(_cell(array, r, c, text) for c in columns)}</tr>" for r in rows)
    return f"<table style='{_STYLE}'>{body}</table>"


def _places(extent: int) -> list[int | None]:
    """The places of an axis that are shown; None stands for those between."""
    edge = PrintOptions.edgeitems
    if extent <= max(4 * edge, 2 * edge + 1):
        return list(range(extent))
    return [*range(edge), None, *range(extent - edge, extent)]


def _cell(array: NDArray[Any], row: int | None, column: int | None, text: Callable[[Any], str]) -> str:
    shown = "…" if row is None or column is None else escape(str(text(array[row, column])).strip())
    return f"<td>{shown}</td>"
