"""A program as a list of nodes that can be read, changed and written as Python.

The nodes are a ring of neighbours around a root, so that one is put in or taken out in constant time.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.fx.code import Names, PythonCode, name_for, python_code
from autojit.fx.code_generators import CodeGen
from autojit.fx.node import Argument, Node, Target, map_aggregate, map_arg, qualified_name
from autojit.fx.public_paths import function_at, public_path

__all__ = ["Graph", "PythonCode"]


class _Nodes:
    """The nodes of a graph in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __len__(self) -> int:
        return self.graph._count

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev


class Graph:
    """Nodes in the order in which they run.

    Args:
        owning_module: the `GraphModule` that it belongs to.
        tracer_cls: the class of what made it.

    Example:
        >>> from autojit import fx
        >>> graph = fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_function(max, (x, 1))
        >>> graph.output(y)
        output
        >>> fx.GraphModule({}, graph)(3)
        3
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._root = Node(self, "", "call_function", len, (), {})
        self._count = 0
        self._names = Names()
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}  # of the function that it was traced from, for tracebacks
        self._insert: Callable[[Node], None] = self._root.prepend

    @property
    def nodes(self) -> _Nodes:
        """The nodes in order; `reversed` and `len` know them too."""
        return _Nodes(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, with a target if one is given."""
        return [node for node in self.nodes if node.op == op and target in (None, node.target)]

    def output_node(self) -> Node:
        """The node of the results."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: object = None,
    ) -> Node:
        """Make a node where nodes are put in now, at the end if not otherwise said."""
        wanted = self._names.new(name or name_for(target))
        made = Node(self, wanted, op, target, args or (), kwargs or {}, type_expr)
        self._insert(made)
        self._count += 1
        return made

    def placeholder(self, name: str, type_expr: object = None, default_value: Argument = ...) -> Node:
        """An argument of the function."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: object = None) -> Node:
        """A parameter, buffer or attribute of the module; a warning says if that has none such."""
        self._warn_of_missing("get_attr", qualified_name, "add_submodule, register_parameter or register_buffer")
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: object = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: object = None,
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: object = None,
    ) -> Node:
        """A call of a submodule; a warning says if the module has none such."""
        self._warn_of_missing("call_module", module_name, "add_submodule")
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def _warn_of_missing(self, op: str, target: str, adding: str) -> None:
        if self.owning_module is not None and _missing_part(self.owning_module, target) is not None:
            warn(
                f"Attempted to insert a {op} Node with no underlying reference in the owning GraphModule! Call "
                f"{adding} to add what {target} names"
            )

    def output(self, result: Argument, type_expr: object = None) -> Node:
        """What the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node) -> Node:
        """A node like one of another graph; ``arg_transform`` gives what stands here for the nodes that it reads."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Argument:
        """Put all nodes of another graph in; its result. ``val_map`` gets, and may have, what stands for a node."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda read: val_map[read])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda read: val_map[read])
        return None

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out.

        Raises:
            RuntimeError: others read it, or it is of another graph.
        """
        if to_erase.users:
            raise UsageError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the "
                             f"graph: {to_erase.users}!")  # fmt: skip
        if to_erase.graph is not self:
            raise UsageError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        before, after = to_erase._prev, to_erase._next
        to_erase._unlink()
        to_erase._prev, to_erase._next = before, after  # a loop over the nodes that takes out the present one goes on
        to_erase._erased = True
        to_erase._set((), {})
        self._count -= 1

    @contextmanager
    def inserting_before(self, n: Node | None = None) -> Iterator[None]:
        """Inside, nodes are put before one; before all without one."""
        with self._inserting((self._root._next if n is None else n).prepend):
            yield

    @contextmanager
    def inserting_after(self, n: Node | None = None) -> Iterator[None]:
        """Inside, nodes are put after one; after all without one."""
        place = self._root._prev if n is None else n

        def insert(made: Node) -> None:
            nonlocal place
            place.append(made)
            place = made

        with self._inserting(insert):
            yield

    @contextmanager
    def _inserting(self, insert: Callable[[Node], None]) -> Iterator[None]:
        before, self._insert = self._insert, insert
        try:
            yield
        finally:
            self._insert = before

    def set_codegen(self, codegen: CodeGen) -> None:
        """Say how the function takes its arguments and returns; ``recompile`` the module afterwards."""
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the nodes, of those of the function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The result of the function, of that of the nodes."""
        return self._codegen.process_outputs(out)

    def python_code(self, root_module: str, *, verbose: bool = False) -> PythonCode:
        """The function as text, with the globals that it needs."""
        return python_code(self, root_module)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out what nothing reads, if it does not change anything; whether something was taken out."""
        before = self._count
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node or Node.is_impure)(node):
                self.erase_node(node)
        return self._count < before

    def lint(self) -> None:
        """Check that the graph can run: names are given once, and every node reads earlier ones of this graph.

        Raises:
            RuntimeError: it cannot; says why.
        """
        seen: dict[str, Node] = {}
        for node in self.nodes:
            if node.graph is not self:
                raise UsageError(f"Node '{node.name}' does not belong to this Graph!")
            for read in node.all_input_nodes:
                if read.graph is not self:
                    raise UsageError(
                        f"Argument '{read.name}' of Node '{node.name}' does not belong to this Graph, but was used "
                        "as an argument! If you are copying nodes from another graph, make sure to use "
                        f"``arg_transform`` on node_copy() to remap values\n{self}"
                    )
                if seen.get(read.name) is not read:
                    raise UsageError(
                        f"Argument '{read.name}' of Node '{node.name}' was used before it has been defined! Please "
                        f"check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in seen:
                raise UsageError(f"Node redefined name {node.name}!")
            seen[node.name] = node
            self._lint_target(node)

    def _lint_target(self, node: Node) -> None:
        if self.owning_module is None or node.op not in ("get_attr", "call_module"):
            return
        missing = _missing_part(self.owning_module, str(node.target))
        if missing is not None:
            part, owner = missing
            raise UsageError(f"Node {node} target {node.target} references nonexistent attribute {part} of {owner}")

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        rows = [["opcode", "name", "target", "args", "kwargs"]]
        for node in self.nodes:
            target = node.target if isinstance(node.target, str) else qualified_name(node.target)
            rows.append([node.op, node.name, target, str(node.args), str(dict(node.kwargs))])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        sys.stdout.write("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows) + "\n")

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(node.format_node() for node in self.nodes)])

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        made = type(self)(tracer_cls=self._tracer_cls)
        made._codegen = copy.deepcopy(self._codegen)
        made._co_fields = dict(self._co_fields)
        values: dict[Node, Node] = {}
        for node in self.nodes:
            values[node] = made.node_copy(node, lambda read: values[read])
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        records = []
        for node in self.nodes:
            args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda read: _Read(read.name))
            path = None if isinstance(node.target, str) else public_path(node.target)
            records.append((node.op, node.target if path is None else _Function(path), args, kwargs, node.name))
        return _read_back, (records, self._codegen)


def _missing_part(module: Any, path: str) -> tuple[str, Any] | None:
    """The first part of a path that a module has not, and what has it not; None: there is something at the path."""
    for part in path.split("."):
        if not hasattr(module, part):
            return part, module
        module = getattr(module, part)
    return None


class _Read(str):
    """In a pickle, the name of the node that is read."""

    __slots__ = ()


class _Function(_Read):
    """The path of a public function, which pickles do not find by its own module."""

    __slots__ = ()


def _read_back(records: list[tuple[Any, ...]], codegen: CodeGen) -> Graph:
    """The graph of a pickle."""
    from_name: dict[str, Node] = {}
    made = Graph()
    made._codegen = codegen
    for op, target, args, kwargs, name in records:
        given = map_aggregate((args, kwargs), lambda part: from_name[part] if type(part) is _Read else part)
        called = function_at(target) if isinstance(target, _Function) else target
        from_name[name] = made.create_node(op, called, given[0], given[1], name)
    return made
