"""Products of parameters of which a part runs always, so chosen that every value and most pairs of values occur."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def covering(names: str, *values: Iterable[Any], every: int, ids: Any = None) -> pytest.MarkDecorator:
    """``parametrize`` with the product of ``values``: one of ``every`` cases, and with --slow the others too.

    The cases are those whose places among the values sum up to a multiple of ``every``.
    """
    cases = []
    for case in product(*map(enumerate, values)):
        is_always = sum(place for place, _ in case) % every == 0
        given = [x.values[0] if isinstance(x, ParameterSet) else x for _, x in case]
        cases.append(pytest.param(*given, marks=() if is_always else pytest.mark.slow))
    return pytest.mark.parametrize(names.split(", "), cases, ids=ids)
