"""What stands for a value while a program is traced: what is done with it becomes nodes of a graph.

A proxy overrides by ``__torch_function__`` what public functions do with it, and has Python's operators. It has no
value: a decision, a loop or a length that depends on one is an error that says so.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import autojit as aj
from autojit.core.device import Device
from autojit.core.errors import UsageError
from autojit.functions import overridable
from autojit.fx.code import INFIX
from autojit.fx.graph import Graph
from autojit.fx.node import Argument, Node, Target, base_types, has_side_effect
from autojit.overrides import is_tensor_method_or_property
from autojit.tensor.tensor import SLOTS

__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "TracerBase"]

_INSTEAD = "mark what decides as a leaf (Tracer.is_leaf_module, fx.wrap), pass concrete_args, or compile with aj.jit"


_NO_ATTRIBUTES = frozenset({"node", "tracer", *SLOTS})
"""Names that no proxy has, as those of Python's protocols: functions look for them before they ask classes."""


class TraceError(UsageError, ValueError):
    """What a program asks of a value that is not known while it is traced."""


class TracerBase:
    """Makes nodes of a graph, and proxies for them."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    module_stack: dict[str, Any]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: object = None,
    ) -> Node:
        """A node with the modules it is called in, as ``meta["nn_module_stack"]``."""
        if kind == "call_function" and self.check_mutable_operations:
            _refuse_writing(target, kwargs)
        made = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        stack = getattr(self, "module_stack", None)
        if stack:
            made.meta["nn_module_stack"] = dict(stack)
        return made

    def proxy(self, node: Node) -> Proxy:
        """What stands for the node's result."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: object = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A node of arguments that may hold proxies, and what stands for its result."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        made = self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = "".join(traceback.format_list(traceback.extract_stack()[:-2]))
        return made

    def create_arg(self, a: Argument) -> Argument:
        """What a node holds of an argument.

        Raises:
            NotImplementedError: a kind of object that nodes cannot hold.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*(self.create_arg(part) for part in a))
        if isinstance(a, tuple | list):
            return type(a)([self.create_arg(part) for part in a])
        if isinstance(a, dict):
            for key in a:
                if isinstance(key, Proxy):
                    raise UsageError("Keys for dictionaries used as an argument cannot contain a Node.", {"key": key})
            return {key: self.create_arg(part) for key, part in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if isinstance(a, (base_types, Node | enum.Enum | Device | type(aj.strided))):
            return a
        if callable(a) or isinstance(a, type(aj.contiguous_format)):
            return a
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            parts = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), parts)
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """What a decision on a proxy is: an error, if a tracer does not know better."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow", {"value": obj}, _INSTEAD
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What a loop over a proxy runs over: the same."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument",
            {"value": obj},
            _INSTEAD,
        )

    def keys(self, obj: Proxy) -> Any:
        """What ``**proxy`` takes: an attribute of the result."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that is given."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """Stands for a node's result; operators, methods, attributes and public functions of it make nodes.

    Example:
        >>> import autojit as aj
        >>> graph = aj.fx.Graph()
        >>> x = aj.fx.Proxy(graph.placeholder("x"))
        >>> y = aj.relu(x) * 2 + x.neg()
        >>> print(graph)
        graph():
            %x : [num_users=2] = placeholder[target=x]
            %relu : [num_users=1] = call_function[target=autojit.relu](args = (%x,), kwargs = {})
            %mul : [num_users=1] = call_function[target=operator.mul](args = (%relu, 2), kwargs = {})
            %neg : [num_users=1] = call_method[target=neg](args = (%x,), kwargs = {})
            %add : [num_users=0] = call_function[target=operator.add](args = (%mul, %neg), kwargs = {})
    """

    node: Node
    tracer: TracerBase

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        overridable.install()  # a function that ran until it fails would leave nodes behind
        self.node = node
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in _NO_ATTRIBUTES or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked(inspect.currentframe())
        if count is None:
            return self.tracer.iter(self)
        make = self.tracer.create_proxy
        return iter([make("call_function", operator.getitem, (self, place), {}) for place in range(count)])

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted(inspect.currentframe()):
            self.tracer.create_proxy("call_function", _assert_true, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> NoReturn:
        raise TraceError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
                         "please call torch.fx.wrap('len') at module scope", {"value": self})  # fmt: skip

    def __contains__(self, item: object) -> NoReturn:
        raise TraceError("'in' is not supported in symbolic tracing", {"value": self}, _INSTEAD)

    def __index__(self) -> NoReturn:
        raise TraceError("a traced value is no number yet", {"value": self}, _INSTEAD)

    def __setitem__(self, key: Argument, value: Argument) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: object, args: tuple[Argument, ...] = (), kwargs: dict[str, Argument] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        found: dict[int, TracerBase] = {}

        def note(a: Argument) -> None:
            if isinstance(a, Proxy):
                found.setdefault(id(a.tracer), a.tracer)
            elif isinstance(a, tuple | list):
                for part in a:
                    note(part)
            elif isinstance(a, dict):
                note(list(a.values()))

        note((args, kwargs))
        if len(found) > 1:
            raise UsageError(
                "Found multiple different tracers while trying to trace operations", {"function": orig_method}
            )
        (tracer,) = found.values()
        if is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=orig_method.__name__)


class Attribute(Proxy):
    """An attribute of a proxy: calling it is a method's node, all else makes a ``getattr`` node."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._made: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The attribute's own node, made when it is first asked for."""
        if self._made is None:
            self._made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._made

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _unpacked(frame: Any) -> int | None:
    """Into how many names the caller of ``__iter__`` unpacks; None: it does something else."""
    caller = frame.f_back.f_back if frame.f_back.f_code is Proxy.__iter__.__code__ else frame.f_back
    for instruction in dis.get_instructions(caller.f_code):
        if instruction.offset == caller.f_lasti:
            return instruction.argval if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def _is_asserted(frame: Any) -> bool:
    """Whether the caller of ``__bool__`` is an ``assert``: what follows if it holds not raises AssertionError."""
    found = [one for one in dis.get_instructions(frame.f_back.f_code) if one.offset >= frame.f_back.f_lasti][:3]
    jump = 1 if found[0].opname == "TO_BOOL" else 0
    after = found[jump + 1 :][:1]
    return found[jump].opname.endswith("IF_TRUE") and any(
        one.opname == "LOAD_ASSERTION_ERROR" or one.argval is AssertionError for one in after
    )


@has_side_effect
def _assert_true(condition: object) -> None:
    assert condition


def _refuse_writing(target: Any, kwargs: dict[str, Argument]) -> None:
    name = str(getattr(target, "__name__", ""))
    is_own = str(getattr(target, "__module__", "")).startswith("autojit")
    if is_own and (kwargs.get("out") is not None or (name.endswith("_") and not name.endswith("__"))):
        overload = f"{name}.out" if kwargs.get("out") is not None else name
        raise UsageError(
            f"Tried to trace mutable operation aten::{overload}. FX only supports functional code",
            {"function": target},
            "use the function that returns its result",
        )


def _operator(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def applied(self: Proxy, *others: Argument) -> Any:
        args = (*others, self) if swapped else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return functools.wraps(function)(applied)


_NAMES = {function: function.__name__.strip("_") for function in INFIX}
for _function, _name in _NAMES.items():
    setattr(Proxy, f"__{_name}__", _operator(_function, swapped=False))
    if _name not in ("eq", "ne", "lt", "gt", "le", "ge"):
        setattr(Proxy, f"__r{_name}__", _operator(_function, swapped=True))
for _function in (operator.getitem, operator.neg, operator.pos, operator.invert, operator.abs):
    setattr(Proxy, f"__{_function.__name__.strip('_')}__", _operator(_function, swapped=False))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]  # ``==`` makes a node; proxies are keys by identity
