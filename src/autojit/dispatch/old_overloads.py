"""Forms of calls that torch has replaced and still takes: numbers before tensors, as optimisers wrote them until 2020.

``x.add_(-lr, grad)`` means ``x.add_(grad, alpha=-lr)``, and ``addmm(beta, x, alpha, a, b)`` means
``addmm(x, a, b, beta=beta, alpha=alpha)``. Only calls are looked at that have failed, or that nothing else is meant by.
Source: torch's tools/autograd/deprecated.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autojit.core.user_warnings import warn
from autojit.dispatch.promotion import NUMBERS
from autojit.tensor.tensor import Tensor, type_of

_NUMBERS = {"add": ("alpha",), "sub": ("alpha",), "addcmul": ("value",), "addcdiv": ("value",)} | dict.fromkeys(
    ("addbmm", "addmm", "addmv", "addr", "baddbmm"), ("beta", "alpha")
)
"""By function: the keywords that are meant by its numbers, in order."""

_FORM = re.compile("tn{1,2}t+|ntn?t+")  # of a method, and of a function


def has_old_overloads(name: str) -> bool:
    """Whether a function, or the in-place form of one, had other forms."""
    return name.removesuffix("_") in _NUMBERS


def in_new_form(
    name: str, arguments: Sequence[Any], options: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments of a call in an old form as they are written today, after a warning; None of any other call."""
    keywords = _NUMBERS.get(name.removesuffix("_"))
    if keywords is None or len(arguments) < 3:
        return None
    kinds = "".join(["t" if isinstance(a, Tensor) else "n" if isinstance(a, NUMBERS) else "?" for a in arguments])
    numbers = [a for a in arguments if not isinstance(a, Tensor)]
    is_of_function = kinds[0] == "n"
    if kinds == "ttn" and len(keywords) == 1 and not type_of(arguments[1]).shape:  # of no axes: a number to torch too
        return [arguments[0], arguments[2]], {**options, keywords[0]: arguments[1].item()}
    if not _FORM.fullmatch(kinds) or len(numbers) > len(keywords) or (is_of_function and len(keywords) == 1):
        return None
    given = dict(zip(keywords, numbers, strict=False))
    shown = ", ".join(["Number " + keyword for keyword in given])
    warn(
        f"This overload of {name} is deprecated: numbers before tensors ({shown}). Consider using keywords instead: "
        f"{name}(..., {', '.join(f'{keyword}={number}' for keyword, number in given.items())})",
        UserWarning,
    )
    return [a for a in arguments if isinstance(a, Tensor)], {**options, **given}
