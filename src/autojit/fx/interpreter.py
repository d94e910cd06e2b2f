"""Running a graph node by node, with a method for each kind of node to override."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from autojit.core.errors import UsageError
from autojit.fx._symbolic_trace import Tracer
from autojit.fx.graph import Graph
from autojit.fx.graph_module import GraphModule
from autojit.fx.node import Argument, Node, Target, map_aggregate, map_arg, plain
from autojit.fx.proxy import Proxy
from autojit.nn import Module

__all__ = ["Interpreter", "Transformer"]

_PLACES = ("nn_module_stack", "source_fn_stack", "stack_trace", "torch_fn", "custom", "from_node")
"""What nodes know of the place in the program that they are from: it holds for what replaces them."""


class Interpreter:
    """Runs the graph of a module: what each node gives is in ``env`` as long as it is read.

    Args:
        garbage_collect_values: forget a value after its last reader.
        graph: run this one in place of the module's.

    Example:
        >>> import autojit as aj
        >>> class Doubling(aj.fx.Interpreter):
        ...     def call_function(self, target, args, kwargs):
        ...         return 2 * super().call_function(target, args, kwargs)
        >>> Doubling(aj.fx.symbolic_trace(lambda x: aj.relu(x))).run(aj.ones(2))
        tensor([2., 2.])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        owner: Any = module
        self.graph: Graph = owner.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.garbage_collect_values = garbage_collect_values
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            last = {read: node for node in self.graph.nodes for read in node.all_input_nodes}
            for read, node in last.items():
                self.user_to_last_uses.setdefault(node, []).append(read)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The result of the graph for arguments; nodes of ``initial_env`` are not run."""
        self.env = {} if initial_env is None else initial_env
        self.args_iter = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        for node in self.graph.nodes:
            if node not in self.env:
                try:
                    self.env[node] = self.run_node(node)
                except Exception as error:
                    error.add_note(f"While executing {node.format_node()}")
                    raise
            for done in self.user_to_last_uses.get(node, ()):
                del self.env[done]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def run_node(self, n: Node) -> Any:
        """What one node gives."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, or its default.

        Raises:
            RuntimeError: there is neither.
        """
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise UsageError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A parameter, buffer or attribute."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function."""
        assert callable(target)
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a method of the first argument."""
        return getattr(args[0], str(target))(*args[1:], **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the graph."""
        return plain(args[0])

    def fetch_attr(self, target: str) -> Any:
        """What is at a path of the module."""
        found: Any = self.module
        for part in target.split("."):
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, as values."""
        args, kwargs = self.map_nodes_to_values((n.args, n.kwargs), n)
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """A structure with what its nodes gave."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise UsageError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Makes a new module of a graph: each method gives what stands for its node in the new graph.

    Example:
        >>> import autojit as aj
        >>> class Smooth(aj.fx.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         return super().call_function(aj.tanh if target is aj.relu else target, args, kwargs)
        >>> smooth = Smooth(aj.fx.symbolic_trace(lambda x: aj.relu(x) + 1)).transform()
        >>> smooth(aj.zeros(1))
        tensor([1.])
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self._current: Node | None = None
        transformer = self

        class TransformerTracer(Tracer):
            """Adds to the new graph; submodules are nodes."""

            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.root = module

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

            def create_node(self, *args: Any, **kwargs: Any) -> Node:
                made = super().create_node(*args, **kwargs)
                told = {} if transformer._current is None else transformer._current.meta
                made.meta.update({name: copy.copy(told[name]) for name in _PLACES if name in told})
                return made

        self.tracer = TransformerTracer(self.new_graph)

    def run_node(self, n: Node) -> Any:
        """What stands for a node; nodes made meanwhile are from the same place of the program."""
        self._current = n
        return super().run_node(n)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """An argument of the new graph."""
        return Proxy(self.new_graph.placeholder(str(target), default_value=args[0] if args else ...), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """An attribute, in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule, in the new graph."""
        module = self.fetch_attr(str(target))
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function, in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method, in the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        result = self.run(enable_io_processing=False)
        if result is not None:
            self.new_graph.output(map_aggregate(result, lambda part: part.node if isinstance(part, Proxy) else part))
        return GraphModule(self.module, self.new_graph)
