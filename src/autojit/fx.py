"""Names of torch.fx that libraries write in annotations, decorators and isinstance. Nothing is traced symbolically:
``aj.jit`` captures whole steps, and forward hooks give what is inside a module.

Example:
    >>> import autojit as aj
    >>> isinstance(aj.nn.Linear(2, 2), aj.fx.GraphModule)
    False
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from autojit.core.absent_class import WithoutInstances
from autojit.core.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any] | str)

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "symbolic_trace", "wrap"]

_INSTEAD = "aj.jit captures whole steps, forward hooks give what is inside a module, step.show() prints the graph"


class _Symbolic(WithoutInstances):
    what = "modules that are traced symbolically"
    instead = _INSTEAD


class GraphModule(_Symbolic):
    """A module written by torch.fx."""


class Graph(_Symbolic):
    """Its graph."""


class Node(_Symbolic):
    """A node of it."""


class Proxy(_Symbolic):
    """What stands for a tensor in such a trace."""


class Tracer(_Symbolic):
    """What makes such a trace."""


class Interpreter(_Symbolic):
    """What runs one."""


class Transformer(_Symbolic):
    """What rewrites one."""


def wrap(fn_or_name: F) -> F:
    """The function as it is: torch.fx would leave it whole in its traces."""
    return fn_or_name


def symbolic_trace(root: object, concrete_args: object = None) -> NoReturn:
    """Refused.

    Raises:
        UsageError: always.
    """
    raise UsageError(f"symbolic_trace: there are no {_Symbolic.what} here", fix=_INSTEAD)
