"""How tensors show in notebooks: a table of the numbers that ``print`` would choose, under a line about the tensor."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.functions.printing import PrintOptions, number_format
from autojit.history.recording import wants_grad
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STYLE = "text-align: right; font-family: monospace"


def to_html(self: Tensor) -> str:
    """A tensor of one or two axes as a table, others as ``print`` shows them; long axes show their ends.

    Example:
        >>> import autojit as aj
        >>> print(aj.tensor([1.0, 2.5])._repr_html_())
        <div><code>tensor f32[2]</code><table style=...><tr><td>1.0000</td><td>2.5000</td></tr></table></div>
    """
    t = type_of(self)
    is_plain = type(self._array) is np.ndarray and state.trace is None and not state.layers
    if not is_plain or t.ndim not in (1, 2) or not t.size:
        return f"<pre>{escape(str(self))}</pre>"
    array = self._array.reshape(-1, t.shape[-1])
    text = number_format(array)
    rows, columns = (_shown(n) for n in array.shape)
    body = "".join(f"<tr>{''.join(_cell(array, r, c, text) for c in columns)}</tr>" for r in rows)
    return f"<div><code>tensor {escape(str(t))}{_history(self)}</code><table style='{_STYLE}'>{body}</table></div>"


def _shown(extent: int) -> list[int | None]:
    """The places of an axis that are shown; None stands for those between."""
    edge = PrintOptions.edgeitems
    if extent <= max(4 * edge, 2 * edge + 1):
        return list(range(extent))
    return [*range(edge), None, *range(extent - edge, extent)]


def _cell(array: NDArray[Any], row: int | None, column: int | None, text: Callable[[Any], str]) -> str:
    shown = "…" if row is None or column is None else escape(str(text(array[row, column])).strip())
    return f"<td>{shown}</td>"


def _history(t: Tensor) -> str:
    if not wants_grad(t):
        return ""
    return " · requires_grad" if t._grad_fn is None else f" · {escape(t._grad_fn.name())}"
