"""``symbolic_trace``: a module's forward, run once with proxies, as a graph.

While it runs, calls of submodules and reads of parameters are seen by the tracer, and functions that ``wrap`` was told
of make nodes. Submodules of ``autojit.nn`` are leaves: one node each; what users define is traced through.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import autojit as aj
from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.core.wrapping import wraps
from autojit.fx.code_generators import PyTreeCodeGen, PyTreeInfo
from autojit.fx.graph import Graph
from autojit.fx.graph_module import GraphModule
from autojit.fx.node import Argument, Node, base_types, has_side_effect, map_aggregate
from autojit.fx.proxy import Proxy, TracerBase
from autojit.jit import pytree
from autojit.nn import Module, Parameter, Sequential
from autojit.tensor import Tensor

__all__ = ["PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

F = TypeVar("F", bound="Callable[..., Any] | str")
_wrapped: list[tuple[dict[str, Any], str]] = []  # globals of a module, and the name in them that becomes nodes


class _Active(threading.local):
    """The tracers that run in a thread, innermost last."""

    def __init__(self) -> None:
        self.tracers: list[Tracer] = []


_active = _Active()


class PHBase:
    """In ``concrete_args``, an argument, or a part of one, that stays open."""

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """One whose node has ``ph_key``."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


PH = PHBase()


def is_fx_tracing() -> bool:
    """Whether a module is being traced in this thread."""
    return bool(_active.tracers)


class ProxyableClassMeta(type):
    """A metaclass of classes whose objects are made by nodes while a program is traced, if proxies go into them.

    Example:
        >>> import autojit as aj
        >>> class Pair(metaclass=aj.fx.ProxyableClassMeta):
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> traced = aj.fx.symbolic_trace(lambda x, y: Pair(x, y))
        >>> traced(1, 2).b
        2
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _node_or_call(lambda *a, **k: super(ProxyableClassMeta, cls).__call__(*a, **k), cls, args, kwargs)


def wrap(fn_or_name: F) -> F:
    """Leave calls of a function whole in graphs: for what decides by values, such as ``len``. Said at a module's top.

    Raises:
        UsageError: it is said inside of a function, or of what is no function.

    Example:
        >>> import autojit as aj
        >>> aj.fx.wrap("len")
        'len'
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise UsageError("Unsupported type for global function! Must be either a callable or string name",
                         {"given": type(fn_or_name)})  # fmt: skip
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped.append((caller.f_globals, name))
    return fn_or_name


class Tracer(TracerBase):
    """Makes the graph of a module; subclasses say what is a leaf, and what nodes hold.

    Args:
        autowrap_modules: modules whose functions become nodes where a traced function calls them.
        autowrap_functions: further such functions.

    Example:
        >>> import autojit as aj
        >>> model = aj.nn.Sequential(aj.nn.Linear(2, 2), aj.nn.ReLU())
        >>> [node.target for node in aj.fx.Tracer().trace(model).nodes]
        ['input', '0', '1', 'output']
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._functions = {id(f) for module in autowrap_modules for f in vars(module).values() if callable(f)}
        self._functions |= set(map(id, autowrap_functions))
        self._modules = tuple(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.tensor_attrs: dict[int, str] = {}
        self.module_stack: dict[str, Any] = {}
        self.submodule_paths: dict[Module, str] | None = None
        self.root: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        made = memo[id(self)] = type(self).__new__(type(self))
        for name, value in vars(self).items():
            made.__dict__[name] = value if name in ("_modules", "_functions") else copy.deepcopy(value, memo)
        return made

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a submodule is one node: those of ``autojit.nn`` are, containers are not."""
        return type(m).__module__.startswith(("autojit.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule.

        Raises:
            NameError: it is not below the module that is traced.
        """
        for name, known in self.root.named_modules(remove_duplicate=False):
            if known is mod:
                return str(name)
        raise NameError(f"module {type(mod).__name__} is not installed as a submodule")

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Argument, ...], kwargs: dict[str, Argument]
    ) -> Any:
        """A call of a submodule: a node for a leaf, else what its forward makes."""
        path = self.path_of_module(m)
        before = self.module_stack
        self.module_stack = {**before, path: (path, type(m))}
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack = before

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What reading an attribute of a module gives: a node for parameters (and buffers, if asked for)."""
        named: list[Iterator[tuple[str, Tensor]]] = []
        if isinstance(attr_val, Parameter):
            named.append(self.root.named_parameters(remove_duplicate=False))
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named.append(self.root.named_buffers(remove_duplicate=False))
        for name, value in (pair for pairs in named for pair in pairs):
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
                return parameter_proxy_cache[name]
        return attr_val

    def create_arg(self, a: Argument) -> Argument:
        """What a node holds: tensors and parameters are attributes of the module."""
        if not isinstance(a, Tensor):
            if isinstance(type(a), ProxyableClassMeta):
                return self._constant(a, f"_{type(a).__name__}_constant_")
            if isinstance(a, Module):
                return self.create_node("get_attr", self.path_of_module(a), (), {})
            return super().create_arg(a)
        kinds = (self.root.named_parameters, self.root.named_buffers)
        for name, value in (pair for kind in kinds for pair in kind(remove_duplicate=False)):
            if value is a:
                return self.create_node("get_attr", name, (), {})
        return self._constant(a, "_tensor_constant")

    def _constant(self, a: Any, start: str) -> Node:
        """The node of an attribute of the module that holds a value."""
        name = self.tensor_attrs.get(id(a)) or next(
            (key for key, value in vars(self.root).items() if value is a), f"{start}{len(self.tensor_attrs)}"
        )
        self.tensor_attrs[id(a)] = name
        if getattr(self.root, name, None) is not a:
            setattr(self.root, name, a)
        return self.create_node("get_attr", name, (), {})

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: dict[str, Any] | tuple[Any, ...] | None = None
    ) -> tuple[Any, list[Any]]:
        """The function, and what it is called with: proxies, and the values of ``concrete_args``."""
        code = inspect.unwrap(root_fn).__code__
        count = code.co_argcount + code.co_kwonlyargcount
        if is_module and not count:
            raise UsageError("``self`` argument cannot be part of *args expansion!", {"module": type(self.root)},
                             "def forward(self, *args)")  # fmt: skip
        names = [*code.co_varnames[:count]]
        if isinstance(concrete_args, tuple) and code.co_flags & inspect.CO_VARARGS and count == is_module:
            leaves = [self._leaf("input", f"_{place}", value, ()) for place, value in enumerate(concrete_args)]
            return root_fn, [*([self.root] if is_module else []), *leaves]
        if isinstance(concrete_args, tuple):
            concrete_args = _by_name(names[is_module:], concrete_args)
        rest = iter(code.co_varnames[count:])
        names += [f"*{next(rest)}"] if code.co_flags & inspect.CO_VARARGS else []
        names += [f"**{next(rest)}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
        parameters = inspect.signature(root_fn).parameters
        args: list[Any] = [self.root] if is_module else []
        args += [self._argument(name, parameters, concrete_args or {}) for name in names[is_module:]]

        def called(*given: Any) -> Any:
            return _called_with_rest(root_fn, code, given)

        leaves, structure = pytree.flatten(tuple(args))
        if all(child.kind is None for child in structure.children):
            return called, args

        def of_leaves(*given: Any) -> Any:
            results, made = pytree.flatten(called(*structure.unflatten(given)))
            self.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, structure, made)))
            return results

        return of_leaves, leaves

    def _argument(self, name: str, parameters: Mapping[str, Any], concrete: dict[str, Any]) -> Any:
        """What the function gets for an argument: a proxy, or the value, whose leaves the graph then insists on."""
        parameter = parameters.get(name)
        default = () if parameter is None or parameter.default is parameter.empty else (parameter.default,)
        if name not in concrete:
            return self.create_proxy("placeholder", name, default, {})
        leaves, structure = pytree.flatten(concrete[name])
        values = [self._leaf(name, f"_{number}", leaf, default) for number, leaf in enumerate(leaves, start=1)]
        return structure.unflatten(values)

    def _leaf(self, name: str, ending: str, value: Any, default: tuple[Any, ...]) -> Any:
        made = self.create_proxy("placeholder", f"{name}{ending}", default, {})
        if isinstance(value, PHBase):
            for known, told in vars(value).items():
                if not hasattr(made.node, known):
                    setattr(made.node, known, told)
            return made
        said = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (made, said), {})
        elif isinstance(value, base_types):
            same = self.create_proxy("call_function", operator.eq, (made, value), {})
            self.create_proxy("call_function", aj._assert, (same, said), {})
        else:
            warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to "
                "the user to make sure that your inputs match the inputs you specialized the function with."
            )
        return value

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """Run the module, or function, with proxies; its graph.

        Raises:
            TraceError: it decides by a value that is not known.
        """
        is_module = isinstance(root, Module)
        self.root = root if is_module else Module()
        if is_module and not hasattr(root, self.traced_func_name):
            raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
        function = getattr(type(root), self.traced_func_name) if is_module else root
        self.graph = Graph(tracer_cls=type(self))
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.graph._co_fields = {
            name: getattr(code, name) for name in ("co_name", "co_filename", "co_firstlineno") if code is not None
        }
        self.tensor_attrs = {}
        called, args = self.create_args_for_root(function, is_module, concrete_args)
        with self._watching(function):
            result = called(*args)
            self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    @contextmanager
    def _watching(self, function: Any) -> Iterator[None]:
        """See calls of modules, reads of parameters, and calls of functions that become nodes."""
        cache: dict[str, Proxy] = {}
        call, read, thread = Module.__call__, Module.__getattr__, get_ident()

        def seen_call(mod: Module, *args: Argument, **kwargs: Argument) -> Any:
            if get_ident() != thread:
                return call(mod, *args, **kwargs)
            return self.call_module(mod, lambda *a, **k: call(mod, *a, **k), args, kwargs)

        def seen_read(mod: Module, attr: str) -> Any:
            return read(mod, attr) if get_ident() != thread else self.getattr(attr, read(mod, attr), cache)

        places = [*_wrapped]
        known = self._functions | {id(where[name]) for where, name in _wrapped if name in where}
        texts = [type(module).forward for module in self.root.modules() if isinstance(module, GraphModule)]
        for own in (getattr(inspect.unwrap(text), "__globals__", {}) for text in (function, *texts)):
            places += [(own, name) for name, value in own.items() if id(value) in known]
        places += [(vars(module), name) for module in self._modules for name, f in vars(module).items() if callable(f)]
        before = [(where, name, where.get(name)) for where, name in places]
        setattr(Module, "__call__", seen_call)  # noqa: B010
        setattr(Module, "__getattr__", seen_read)  # noqa: B010
        _active.tracers.append(self)
        try:
            for where, name, value in before:
                where[name] = _to_node(value if value is not None else getattr(builtins, name))
            yield
        finally:
            _active.tracers.pop()
            setattr(Module, "__call__", call)  # noqa: B010
            setattr(Module, "__getattr__", read)  # noqa: B010
            for where, name, value in reversed(before):
                if value is None:
                    del where[name]
                else:
                    where[name] = value


has_side_effect(aj._assert)


@has_side_effect
def _assert_is_none(value: object, message: str) -> None:
    if value is not None:
        raise AssertionError(message)


_wrapped.append((globals(), "_assert_is_none"))


def _by_name(names: Sequence[str], values: tuple[Any, ...]) -> dict[str, Any]:
    if len(names) != len(values):
        raise UsageError(f"Tracing expected {len(names)} arguments but got {len(values)} concrete arguments")
    return dict(zip(names, values, strict=True))


def _called_with_rest(function: Any, code: Any, given: tuple[Any, ...]) -> Any:
    """Call a function with a value for each of its names; ``*args`` and ``**kwargs`` are one value each."""
    if not code.co_kwonlyargcount and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return function(*given)
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = code.replace(co_argcount=len(given), co_kwonlyargcount=0, co_posonlyargcount=0, co_flags=flags)
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)(*given)


def _to_node(function: Any) -> Any:
    """The function; given a proxy, a node that calls it."""
    if getattr(function, "__wrapped_for_fx__", False):
        return function

    @wraps(function)
    def called(*args: Argument, **kwargs: Argument) -> Any:
        return _node_or_call(function, function, args, kwargs)

    called.__dict__["__wrapped_for_fx__"] = True
    return called


def _node_or_call(call: Any, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> Any:
    """What ``call`` gives; with proxies, and while one traces, a node of ``target``."""
    found: list[Proxy] = []
    map_aggregate((args, kwargs), lambda part: found.append(part) if isinstance(part, Proxy) else None)
    return found[0].tracer.create_proxy("call_function", target, args, kwargs) if found else call(*args, **kwargs)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module whose forward is the graph of another's, or of a function: to be looked at and changed.

    Raises:
        TraceError: the program decides by a value that is not known.

    Example:
        >>> import autojit as aj
        >>> traced = aj.fx.symbolic_trace(lambda x, y: aj.relu(x) + y)
        >>> print(traced.code.strip())
        def forward(self, x, y):
            relu = autojit.relu(x);  x = None
            add = relu + y;  relu = y = None
            return add
        >>> traced(aj.tensor([-1.0, 2.0]), 1)
        tensor([1., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
