"""One step of a symbolic graph, and what is done with the structures of its arguments.

Arguments are nodes and Python values in tuples, lists, dicts and slices; `map_aggregate` walks through such a
structure. A node knows the nodes that it reads and those that read it (``users``); assigning ``args`` keeps both true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from autojit.core.dtypes import DType
from autojit.core.errors import UsageError
from autojit.fx.immutable_collections import immutable_dict, immutable_list
from autojit.fx.public_paths import shown_path

if TYPE_CHECKING:
    from autojit.fx.graph import Graph

Argument: TypeAlias = Any
"""A node, a Python value, or a structure of such."""
Target: TypeAlias = "Callable[..., Any] | str"

base_types = (str, int, float, bool, complex, DType, type(None), type(...))
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
_impure: set[Callable[..., object]] = {setattr, print, operator.setitem, delattr}


def has_side_effect(fn: Callable[..., object]) -> Callable[..., object]:
    """Keep calls of a function in graphs, read or not; as a decorator.

    Example:
        >>> import autojit as aj
        >>> @aj.fx.has_side_effect
        ... def note(x):
        ...     print("seen")
        >>> graph = aj.fx.Graph()
        >>> call = graph.call_function(note, (1,))
        >>> graph.eliminate_dead_code()
        False
    """
    _impure.add(fn)
    return fn


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """The structure with ``fn`` of every node in it.

    Example:
        >>> import autojit as aj
        >>> x = aj.fx.Graph().placeholder("x")
        >>> aj.fx.map_arg(([x, 2], {"k": x}), lambda node: node.name.upper())
        (['X', 2], {'k': 'X'})
    """
    return map_aggregate(a, lambda part: fn(part) if isinstance(part, Node) else part)


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """The structure with ``fn`` of all that is in it; lists and dicts come back immutable."""
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(part, fn) for part in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(part, fn) for key, part in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def plain(a: Argument) -> Argument:
    """The structure with lists and dicts that can be changed."""
    if isinstance(a, list):
        return [plain(part) for part in a]
    if isinstance(a, dict):
        return {key: plain(part) for key, part in a.items()}
    if isinstance(a, tuple):
        return type(a)(*map(plain, a)) if hasattr(a, "_fields") else tuple(map(plain, a))
    return a


class Node:
    """``name = op(target, args, kwargs)`` of a `Graph`, which makes it.

    Example:
        >>> from autojit import fx
        >>> graph = fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_method("tanh", (x,))
        >>> y.args, x.users, y.format_node()
        ((x,), {tanh: None}, '%tanh : [num_users=0] = call_method[target=tanh](args = (%x,), kwargs = {})')
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: object = None,
    ) -> None:
        if op not in OPS:
            raise UsageError(f"Node: {op!r} is no kind of node", fix=f"one of {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a "
                             "Callable is expected")  # fmt: skip
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a "
                             "str is expected")  # fmt: skip
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._erased = False
        self._prev = self._next = self
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._set(args, kwargs)

    def __repr__(self) -> str:
        return self.name

    @property
    def next(self) -> Node:
        """The node after this one; the graph's root after the last."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    @property
    def args(self) -> tuple[Argument, ...]:
        """The arguments by place; assigning them tells the nodes that are read."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one reads, each once."""
        return list(self._input_nodes)

    @property
    def stack_trace(self) -> str | None:
        """Where the program made it, if the tracer records that."""
        found: str | None = self.meta.get("stack_trace")
        return found

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def _set(self, args: Iterable[Argument], kwargs: dict[str, Argument]) -> None:
        for before in self._input_nodes:
            before.users.pop(self, None)
        self._input_nodes = {}

        def noted(node: Node) -> Node:
            self._input_nodes.setdefault(node)
            node.users.setdefault(self)
            return node

        self._args = map_arg(tuple(args), noted)
        self._kwargs = map_arg(dict(kwargs), noted)

    def prepend(self, x: Node) -> None:
        """Put ``x`` before this node; it is taken from where it was.

        Raises:
            UsageError: the nodes are of two graphs.
        """
        if x.graph is not self.graph:
            raise UsageError("Attempting to move a Node into a different Graph", {"node": x, "before": self})
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Put ``x`` after this node."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one argument by place."""
        self.args = (*self._args[:idx], arg, *self._args[idx + 1 :])

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put one more argument at a place."""
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace one argument by name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let all readers (of which ``delete_user_cb`` is true) read another node; the readers as they were."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        readers = [user for user in self.users if delete_user_cb(user)]
        for user in readers:
            user.replace_input_with(self, replace_with)
        return readers

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read ``new_input`` wherever ``old_input`` is read."""

        def chosen(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, chosen), map_arg(self._kwargs, chosen))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node counts even if nothing reads it: arguments and results, and what writes in place."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _impure or bool(self._kwargs.get("inplace"))
        if self.op == "call_method":
            name = str(self.target)
            return name.endswith("_") and not name.endswith("__")
        if self.op == "call_module":
            module: Any = self.graph.owning_module
            return module is None or getattr(module.get_submodule(self.target), "_is_impure", False)
        return False

    def format_node(self) -> str:
        """The node in a line."""
        kind = "" if self.type is None else f"{_type_name(self.type)} "
        head = f"%{self.name} : {kind}[num_users={len(self.users)}]"
        if self.op == "placeholder":
            default = f"(default={self._args[0]})" if self._args else ""
            return f"{head} = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{head} = get_attr[target={self.target}]"
        if self.op == "output":
            return f"return {self._args[0]}"
        target = self.target if isinstance(self.target, str) else qualified_name(self.target)
        return f"{head} = {self.op}[target={target}](args = {_shown(self._args)}, kwargs = {_shown(self._kwargs)})"


def qualified_name(fn: Callable[..., object]) -> str:
    """``module.function`` as a program writes it."""
    path = shown_path(fn)
    if path is not None:
        return path
    module, name = getattr(fn, "__module__", None) or "builtins", getattr(fn, "__name__", type(fn).__name__)
    return f"{'operator' if module == '_operator' else module}.{name}"


def _type_name(kind: Any) -> str:
    if not isinstance(kind, type):
        return repr(kind)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(a: Argument) -> str:
    """An argument with ``%`` before the names of nodes."""
    if isinstance(a, Node):
        return f"%{a.name}"
    if isinstance(a, tuple):
        inside = ", ".join(map(_shown, a))
        return f"({inside},)" if len(a) == 1 else f"({inside})"
    if isinstance(a, list):
        return f"[{', '.join(map(_shown, a))}]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{key}: {_shown(part)}" for key, part in a.items()) + "}"
    return repr(a) if isinstance(a, slice) else str(a)
