"""What an error says of a value that an op refuses: the value, where it is, what is valid.

Found on the failing path alone: an op looks at its operands again when it knows that one holds such a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import Position

if TYPE_CHECKING:
    from numpy.typing import NDArray


def refused_facts(refused: NDArray[np.bool_], named: str, valid: str, values: Any = None) -> dict[str, object]:
    """Facts about the first refused element, in row-major order.

    Args:
        refused: which elements are refused, one at least unless the error is about none of them.
        named: what the elements are of: ``the index``, ``input``.
        valid: what would have been valid.
        values: the elements, of a shape that broadcasts to that of ``refused``; None: they are given elsewhere.
    """
    facts: dict[str, object] = {}
    found = np.argwhere(refused)
    if len(found):
        position = tuple(found[0].tolist())
        if values is not None and np.asarray(values).dtype.kind != "b":
            facts["value"] = str(np.broadcast_to(values, np.shape(refused))[position])
        if position:
            facts["position"] = Position(position, named)
    facts["valid"] = valid
    return facts
