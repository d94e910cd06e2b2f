"""An optimiser in a notebook: a row per group of parameters, with its options."""

from __future__ import annotations

from html import escape
from typing import Any

from autojit.core.html import count_text, table


def to_html(self: Any) -> str:
    """What notebooks show of an optimiser."""
    names = list(dict.fromkeys(name for group in self.param_groups for name in group if name != "params"))
    told = [name for name in names if any(group.get(name) is not None for group in self.param_groups)]
    rows = [
        (place, len(group["params"]), count_text(sum(int(p.numel()) for p in group["params"])), *map(group.get, told))
        for place, group in enumerate(self.param_groups)
    ]
    head = ("group", "tensors", "parameters", *told)
    return f"<div><code>{escape(type(self).__name__)}</code>{table(rows, head)}</div>"
