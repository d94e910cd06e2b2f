"""A module in a notebook: a tree that folds, with the number of parameters of each part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from autojit.core.html import count_text, folded
from autojit.nn.parameter import is_lazy

if TYPE_CHECKING:
    from autojit.nn.module import Module

MOST_CHILDREN = 200  # of one module


class NotebookMixin:
    """The part of a Module that notebooks ask."""

    def _repr_html_(self) -> str:
        module = cast("Module", self)
        modes = {part.training for part in module.modules()}
        mode = "training" if modes == {True} else "evaluating" if modes == {False} else "partly training"
        return _tree("", module, mode)


def _tree(name: str, module: Any, mode: str = "") -> str:
    children = [(key, child) for key, child in module._modules.items() if child is not None]
    extra = " ".join(module.extra_repr().split())
    title = f"({name}) {module._get_name()}({extra})" if name else f"{module._get_name()}({extra})"
    inner = [_tree(key, child) for key, child in children[:MOST_CHILDREN]]
    if len(children) > MOST_CHILDREN:
        inner.append(f"<div>... {len(children) - MOST_CHILDREN} more</div>")
    return folded(title, inner, is_open=not name, note=", ".join(filter(None, (_size(module), mode))))


def _size(module: Any) -> str:
    """How many numbers the parameters hold, and how many of them are fixed."""
    parameters = list(module.parameters())
    if any(map(is_lazy, parameters)):
        return "parameters not made yet"
    total = sum(p.numel() for p in parameters)
    fixed = sum(p.numel() for p in parameters if not p.requires_grad)
    told = f"{count_text(total)} parameters" if total else ""
    return f"{told}, {count_text(fixed)} fixed" if fixed else told
