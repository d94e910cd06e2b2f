"""The Python text of a symbolic graph, and the names in it.

`python_code` writes one line per node; values that have no text of their own (functions, dtypes, devices, infinities)
become globals of the function. A name is deleted after its last reader, so that memory is free as early as in the
program that was traced.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.package_name import PACKAGE
from autojit.fx.code_generators import CodeGen
from autojit.fx.node import Argument, Node
from autojit.fx.public_paths import shown_path

if TYPE_CHECKING:
    from autojit.fx.graph import Graph

INFIX: dict[Callable[..., Any], str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&",
    operator.or_: "|", operator.xor: "^", operator.matmul: "@", operator.eq: "==", operator.ne: "!=",
    operator.lt: "<", operator.gt: ">", operator.le: "<=", operator.ge: ">=",
}  # fmt: skip
_PREFIX: dict[Callable[..., Any], str] = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
_IN_PLACE: dict[Callable[..., Any], str] = {
    getattr(operator, f"i{name}"): sign
    for name, sign in (("add", "+="), ("sub", "-="), ("mul", "*="), ("truediv", "/="), ("matmul", "@="), ("pow", "**="))
}
_TAKEN = frozenset({*keyword.kwlist, *dir(builtins), "self", "inf", "nan", "math", "torch", "autojit", "operator"})
_ENDING = re.compile(r"(.*)_(\d+)$")


class Names:
    """Names that are taken, of nodes or of globals."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: set[str] = set(taken)

    def new(self, wanted: str) -> str:
        """A name that nothing has yet, close to the one that is wanted."""
        name = re.sub("[^0-9a-zA-Z_]+", "_", wanted)
        name = f"_{name}" if not name or name[0].isdigit() else name
        found = _ENDING.match(name)
        base, number = (found.group(1), int(found.group(2))) if found else (name, 0)
        while name in self._used or name in _TAKEN:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        return name

    def take(self, name: str) -> None:
        """Give a name to nobody else."""
        self._used.add(name)


def name_for(target: object) -> str:
    """What a node is called after: the last words of its target, in lower case."""
    text = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    text = text[2:-2] if text.startswith("__") and text.endswith("__") else text.removeprefix("%")
    return re.sub("(?<=[a-z])([A-Z])", r"_\1", text).lower()


def _path_of(value: Any) -> str:
    """A function's or a class's module and name, which hint at its name as a global."""
    return f"{getattr(value, '__module__', None) or 'builtins'}.{getattr(value, '__name__', type(value).__name__)}"


class PythonCode(NamedTuple):
    """The text of a function, and its globals."""

    src: str
    globals: dict[str, Any]


class _Writer:
    """Writes one function."""

    def __init__(self, root: str, taken: Iterable[str]) -> None:
        self.root = root
        self.globals: dict[str, Any] = {}
        self._names = Names(taken)
        self._known: dict[int, str] = {}

    def named(self, value: Any, hint: str) -> str:
        """A value as a global: a public function by its path, all else by a name that no node has."""
        known = self._known.get(id(value))
        if known is not None:
            return known
        name = getattr(value, "__qualname__", "")
        if getattr(value, "__module__", None) == "builtins" and getattr(builtins, name, None) is value:
            return name
        path = shown_path(value)
        if path is not None:
            top = path.partition(".")[0]
            self.globals[top] = sys.modules[top]
            return path
        found = self._known[id(value)] = self._names.new(hint)
        self.globals[found] = value
        return found

    def text(self, a: Argument) -> str:
        """An argument as an expression."""
        if isinstance(a, Node):
            return a.name
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.named(type(a), type(a).__name__)}({', '.join(map(self.text, a))})"
        if isinstance(a, tuple):
            return f"({', '.join(map(self.text, a))}{',' * (len(a) == 1)})"
        if isinstance(a, list):
            return f"[{', '.join(map(self.text, a))}]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{self.text(key)}: {self.text(part)}" for key, part in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        if isinstance(a, float) and not math.isfinite(a):
            return f"float('{a}')"
        if a is None or isinstance(a, str | int | float | complex):
            return repr(a)
        if a is ...:
            return "..."
        if isinstance(a, DType) and getattr(aj, str(a).rpartition(".")[2], None) is a:
            self.globals[PACKAGE[-1]] = aj
            return str(a)
        return self.named(a, _path_of(a) if callable(a) else type(a).__name__)

    def arguments(self, args: Sequence[Argument], kwargs: dict[str, Argument]) -> str:
        """The inside of the brackets of a call."""
        return ", ".join([*map(self.text, args), *(f"{key} = {self.text(part)}" for key, part in kwargs.items())])

    def line(self, node: Node) -> str:
        """The statement of a node, arguments and results apart."""
        args, target = node.args, node.target
        if node.op == "get_attr":
            return f"{node.name} = {self._path(str(target))}"
        if node.op == "call_module":
            return f"{node.name} = {self._path(str(target))}({self.arguments(args, node.kwargs)})"
        if node.op == "call_method":
            return f"{node.name} = {self._owner(args[0])}.{target}({self.arguments(args[1:], node.kwargs)})"
        assert callable(target)
        texts = [self.text(a) for a in args]
        if not node.kwargs and target in INFIX and len(args) == 2:
            return f"{node.name} = {texts[0]} {INFIX[target]} {texts[1]}"
        if not node.kwargs and target in _PREFIX and len(args) == 1:
            return f"{node.name} = {_PREFIX[target]}{texts[0]}"
        if not node.kwargs and target in _IN_PLACE and len(args) == 2 and isinstance(args[0], Node):
            return f"{texts[0]} {_IN_PLACE[target]} {texts[1]};  {node.name} = {texts[0]}"
        if target is operator.getitem and isinstance(args[0], Node) and len(args) == 2:
            return f"{node.name} = {texts[0]}[{texts[1]}]"
        if target is getattr and isinstance(args[1], str) and args[1].isidentifier() and len(args) == 2:
            return f"{node.name} = {self._owner(args[0])}.{args[1]}"
        return f"{node.name} = {self.named(target, _path_of(target))}({self.arguments(args, node.kwargs)})"

    def _owner(self, a: Argument) -> str:
        return self.text(a) if isinstance(a, Node) else f"({self.text(a)})"

    def _path(self, target: str) -> str:
        path = self.root
        for part in target.split("."):
            path = f"{path}.{part}" if part.isidentifier() else f'getattr({path}, "{part}")'
        return path


def python_code(graph: Graph, root_module: str) -> PythonCode:
    """A function ``forward`` that does what the graph says; ``root_module`` is the name of its first argument."""
    generator = graph._codegen
    arguments = [str(node.target).lstrip("*") for node in graph.nodes if node.op == "placeholder"]
    writer = _Writer(root_module, {*arguments, *(node.name for node in graph.nodes)})
    parameters: list[str] = []
    lines: list[str] = []
    last_reader = {read: node for node in graph.nodes for read in node.all_input_nodes}
    dead: dict[Node, list[str]] = {}
    for read, node in last_reader.items():
        dead.setdefault(node, []).append(read.name)
    has_output = False
    for node in graph.nodes:
        if node.op == "placeholder":
            parameters.append(f"{node.target}={writer.text(node.args[0])}" if node.args else str(node.target))
            given = str(node.target).lstrip("*")
            if given != node.name:
                lines.append(f"{node.name} = {given}")
        elif node.op == "output":
            lines.append(_returned(generator, writer, node.args[0]))
            has_output = True
        else:
            freed = dead.get(node, [])
            lines.append(writer.line(node) + (f";  {' = '.join(freed)} = None" if freed else ""))
    if not has_output:
        lines.append("return None")
    body = "\n".join(f"    {line}" for line in lines)
    head = generator.gen_fn_def(parameters, "").lstrip("\n")
    return PythonCode(f"\n\n\n{head}\n{body}\n", {**writer.globals, **dict(generator.additional_globals())})


def _returned(generator: CodeGen, writer: _Writer, result: Argument) -> str:
    """The last statement; generators of programs may write the result with ``repr``, which gives nodes' names."""
    if "repr_fn" in inspect.signature(generator.generate_output).parameters:
        return generator.generate_output(result, repr_fn=writer.text)
    return generator.generate_output(result)
