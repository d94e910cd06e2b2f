"""A module whose forward is written by a graph: assign ``graph``, or change it and call ``recompile()``."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
from collections.abc import Mapping
from typing import Any

from autojit.core.errors import UsageError
from autojit.fx.graph import Graph, PythonCode
from autojit.nn import Module, Parameter
from autojit.tensor import Tensor

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()


class _CodeOnlyModule(Module):
    """A module with the given attributes, which torchvision makes of a graph module's."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


class GraphModule(Module):
    """Runs a graph. Each object has a class of its own, whose ``forward`` is the graph's.

    Args:
        root: the module that has what the graph reads, or a dict of such things by their targets.

    Raises:
        RuntimeError: ``root`` lacks a target.

    Example:
        >>> import autojit as aj
        >>> traced = aj.fx.symbolic_trace(aj.nn.Sequential(aj.nn.Linear(2, 2), aj.nn.ReLU()))
        >>> for node in traced.graph.find_nodes(op="call_module", target="1"):
        ...     node.op, node.target = "call_method", "tanh"
        >>> traced.recompile().src.splitlines()[-2]
        '    _1 = _0.tanh();  _0 = None'
    """

    def __new__(cls, *args: object, **kwargs: object) -> GraphModule:
        for base in cls.__mro__:  # a copy of one has a class for itself, beside that of the original
            if base.__dict__.get("_is_own", False):
                continue
            return super().__new__(type(base.__name__, (base,), {"_is_own": True, "__module__": base.__module__}))
        raise AssertionError(cls)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            self.training = root.training
        targets = [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]
        for target in sorted(dict.fromkeys(targets), key=lambda path: path.count(".")):
            if isinstance(root, Module):
                _copy_attr(root, self, target)
            elif target in root:
                _assign_attr(root[target], self, target)
            else:
                raise UsageError(f"Node referenced target {target} but that target was not provided in `root`!",
                                 {"graph": class_name})  # fmt: skip
        self.meta: dict[str, Any] = dict(getattr(root, "meta", {}))
        self.graph = graph
        tracer = graph._tracer_cls
        self._tracer_cls = tracer if tracer is not None and "<locals>" not in tracer.__qualname__ else None

    @property
    def graph(self) -> Graph:
        """What ``forward`` does; assigning one writes ``forward`` again."""
        found: Graph = self.__dict__["_graph"]
        return found

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of ``forward``."""
        if "_code" not in self.__dict__:
            raise UsageError("Code has not been generated! Please report a bug to PyTorch", fix="recompile()")
        return str(self.__dict__["_code"])

    def recompile(self) -> PythonCode:
        """Write ``forward`` as the graph now is."""
        written = self.graph.python_code("self")
        self.__dict__["_code"] = written.src
        told = self.graph._co_fields
        place = f" from {told['co_filename']}:{told['co_firstlineno']} in {told['co_name']}" if told else ""
        file = f"<graph module {next(_numbers)}{place}>"
        linecache.cache[file] = (len(written.src), None, written.src.splitlines(keepends=True), file)
        namespace = dict(written.globals)
        exec(compile(written.src, file, "exec"), namespace)
        kind: Any = type(self)
        kind.forward = namespace["forward"]
        structures = getattr(self.graph._codegen, "pytree_info", None)
        if structures is not None:
            self.__dict__.update(_in_spec=structures.in_spec, _out_spec=structures.out_spec)
        return written

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.code}\n# To see more debug info, please use `graph_module.print_readable()`"

    def print_readable(self, print_output: bool = True) -> str:
        """The class as text; printed as well, if not otherwise asked."""
        body = self.code.strip().replace("\n", "\n    ")
        text = f"class {type(self).__name__}(nn.Module):\n    {body}\n"
        if print_output:
            sys.stdout.write(f"{text}\n")
        return text

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a path, whose parents are made where there are none; False: something else is there."""
        *parents, last = target.split(".")
        place: Module = self
        for name in parents:
            below = getattr(place, name, None)
            if below is None:
                below = Module()
                setattr(place, name, below)
            if not isinstance(below, Module):
                return False
            place = below
        place.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take the module at a path away; False: there is none."""
        parent, _, last = target.rpartition(".")
        try:
            place = self.get_submodule(parent)
        except AttributeError:
            return False
        if not isinstance(getattr(place, last, None), Module):
            return False
        delattr(place, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take away every submodule that no node reaches."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                path = str(node.target).split(".")
                used.update(".".join(path[: count + 1]) for count in range(len(path)))
                if node.op == "call_module":
                    used.update(
                        f"{node.target}.{name}" for name, _ in self.get_submodule(str(node.target)).named_modules()
                    )
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def _empty(self) -> GraphModule:
        """A module of the same kind, without anything in it."""
        base: Any = next(kind for kind in type(self).__mro__ if not kind.__dict__.get("_is_own", False))
        made: GraphModule = base.__new__(base)
        Module.__init__(made)
        type(made).__name__ = type(self).__name__
        return made

    def __copy__(self) -> GraphModule:
        body = {
            name: dict(v) if name in ("_parameters", "_buffers", "_modules") else v for name, v in vars(self).items()
        }
        made = self._empty()
        made.__dict__.update({name: value for name, value in body.items() if name != "_graph"})
        made.graph = copy.deepcopy(self.graph)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = memo[id(self)] = self._empty()
        for name, value in vars(self).items():
            if name != "_graph":
                made.__dict__[name] = copy.deepcopy(value, memo)
        made.graph = copy.deepcopy(self.graph)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        body = {name: value for name, value in vars(self).items() if name not in ("_graph", "_code")}
        base: Any = next(kind for kind in type(self).__mro__ if not kind.__dict__.get("_is_own", False))
        return _read_back, (base, type(self).__name__, body, self.graph)


def _read_back(kind: type[GraphModule], name: str, body: dict[str, Any], graph: Graph) -> GraphModule:
    """The module of a pickle."""
    made: GraphModule = kind.__new__(kind)
    Module.__init__(made)
    type(made).__name__ = name
    made.__dict__.update(body)
    made.graph = graph
    return made


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give a module what another has under a path; the tensors and modules are the same objects."""
    found: Any = from_module
    for part in target.split("."):
        found = getattr(found, part)
    if _has_path(to_module, target) and not isinstance(found, Tensor | Module):
        return
    _assign_attr(found, to_module, target)


def _has_path(module: Any, target: str) -> bool:
    for part in target.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Put a value at a path; a tensor that is no parameter becomes a buffer."""
    *parents, last = target.split(".")
    place: Any = to_module
    for name in parents:
        if not hasattr(place, name):
            setattr(place, name, Module())
        place = getattr(place, name)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        place.register_buffer(last, value)
    else:
        setattr(place, last, value)
