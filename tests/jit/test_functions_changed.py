"""The defaults and the code of users' functions are replaced between calls: compiled steps follow, however the function
that runs was reached."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

import autojit as aj
from autojit import nn

Reached = tuple[FunctionType, Callable[[aj.Tensor], Any]]


def _function() -> Any:
    def scaled(x: aj.Tensor, p: float = 3.0, *, q: float = 0.5) -> aj.Tensor:
        return x * p + q

    return scaled


def _method() -> Any:
    def scaled(self: Any, x: Any = None, p: float = 3.0, *, q: float = 0.5) -> Any:
        return (self.x if x is None else x) * p + q

    return scaled


class _Base:
    def __init__(self, x: Any = None) -> None:
        self.x = x

    def __exit__(self, *error: object) -> None: ...


def _class(name: str, wrapped: Callable[[Any], Any] = lambda f: f) -> tuple[FunctionType, Any]:
    f = _method()
    return f, type("Made", (_Base,), {name: wrapped(f)})


def _wrapped(f: Any) -> Any:
    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return run


WAYS: dict[str, Callable[[], Reached]] = {}


def _way(make: Callable[[], Reached]) -> Callable[[], Reached]:
    WAYS[make.__name__.strip("_").replace("_", " ")] = make
    return make


def _around(name: str, wrap: Callable[[Any], Callable[[aj.Tensor], Any]]) -> None:
    """A plain function behind something that is called with the tensor."""

    def make() -> Reached:
        f = _function()
        made = wrap(f)
        return f, lambda x: made(x)

    WAYS[name] = make


def _inside(name: str, member: str, use: Callable[[Any, aj.Tensor], Any], wrapped: Any = lambda f: f) -> None:
    """A member of a class; ``use`` gets the class."""

    def make() -> Reached:
        f, made = _class(member, wrapped)
        return f, lambda x: use(made, x)

    WAYS[name] = make


def _of_object(name: str, member: str, use: Callable[[Any, aj.Tensor], Any], wrapped: Any = lambda f: f) -> None:
    """A member of a class; ``use`` gets an object from outside."""

    def make() -> Reached:
        f, made = _class(member, wrapped)
        one = made(aj.ones(2))
        return f, lambda x: use(one, x)

    WAYS[name] = make


_around("directly", lambda f: f)
_around("a wrapper", _wrapped)
_around("a wrapper of a wrapper", lambda f: _wrapped(_wrapped(f)))
_around("a partial", functools.partial)
_around("a partial of a wrapper", lambda f: functools.partial(functools.partial(_wrapped(f))))
_around("a list", lambda f: lambda x, held=[f]: held[0](x))
_around("a dictionary", lambda f: {"f": f}["f"])
_around("a dictionary of lists", lambda f: lambda x, held={"f": [(f,)]}: [g(x) for (g,) in held["f"]])
_around("functions in a loop", lambda f: lambda x: functools.reduce(lambda y, g: g(y), (f, f), x))
_around("map", lambda f: lambda x: next(iter(map(f, [x]))))
_around("sorted", lambda f: lambda x: sorted([2.0, 1.0], key=lambda v: -f(v)) and f(x))
_around("a function in an attribute", lambda f: lambda x, to=_Base(f): to.x(x))  # noqa: B008
_around("a closure", lambda f: lambda x: (lambda: f(x))())
_around("vmap", lambda f: aj.func.vmap(f))
_around("grad", lambda f: lambda x: aj.func.grad(lambda y: (f(y) ** 2).sum())(x))
_around("a compiled function", lambda f: aj.jit(f))
_around("no_grad", lambda f: aj.no_grad()(f))
_around("checkpoint", lambda f: lambda x: aj.utils.checkpoint.checkpoint(f, x, use_reentrant=False))
_around("cond", lambda f: lambda x: aj.cond(x.sum() > 0, f, lambda y: y, (x,)))
_around("a generator", lambda f: lambda x: [y for y in (f(z) for z in [x, x])])  # noqa: C416
_around("a context manager", lambda f: lambda x: _managed(f, x))
_around("a static method's function", lambda f: staticmethod(f).__func__)
_around("a method bound by hand", lambda f: lambda x: f.__get__(x)())


def _managed(f: Any, x: aj.Tensor) -> Any:
    @contextlib.contextmanager
    def manager() -> Iterator[Any]:
        yield f(x)

    with manager() as found:
        return found


def _dispatched(f: Any) -> Any:
    found = functools.singledispatch(lambda x: x)
    found.register(aj.Tensor, f)
    return found


_around("singledispatch", _dispatched)

_of_object("__call__", "__call__", lambda o, x: o(x))
_of_object("an object's method", "scaled", lambda o, x: o.scaled(x))
_of_object("a method by its class", "scaled", lambda o, x: type(o).scaled(o, x))
_of_object("a method by name", "scaled", lambda o, x: getattr(o, "scaled")(x))  # noqa: B009
_of_object("methodcaller", "scaled", lambda o, x: operator.methodcaller("scaled", x)(o))
_of_object("a class method", "scaled", lambda o, x: o.scaled(x), classmethod)
_of_object("a property", "scaled", lambda o, x: x * o.scaled, property)
_of_object("a partial method", "scaled", lambda o, x: o.scaled(x), functools.partialmethod)
_of_object("a wrapped method", "scaled", lambda o, x: o.scaled(x), _wrapped)
_of_object("an operator", "__add__", lambda o, x: o + x)
_of_object("a reflected operator", "__radd__", lambda o, x: 1.0 + o + x)
_of_object("an operator in place", "__imul__", lambda o, x: operator.imul(o, x))
_of_object("an item", "__getitem__", lambda o, x: o[x])
_inside("a new object's method", "scaled", lambda cls, x: cls().scaled(x))
_inside("a new object's __call__", "__call__", lambda cls, x: cls()(x))
_inside("a new object's property", "scaled", lambda cls, x: cls(x).scaled, property)
_inside("a new object's __enter__", "__enter__", lambda cls, x: _entered(cls, x))
_inside("a class's class method", "scaled", lambda cls, x: cls.scaled(x), classmethod)


def _entered(cls: Any, x: aj.Tensor) -> Any:
    with cls(x) as found:
        return found


@_way
def a_static_method() -> Reached:
    f = _function()
    made = type("Made", (_Base,), {"scaled": staticmethod(f)})()
    return f, lambda x: made.scaled(x)


@_way
def a_missing_attribute() -> Reached:
    def found(self: Any, name: str, p: float = 3.0, *, q: float = 0.5) -> Any:
        return p + q

    made = type("Made", (_Base,), {"__getattr__": found})()
    return found, lambda x: x * made.factor


@_way
def a_descriptor() -> Reached:
    def found(self: Any, owner: Any, cls: Any, p: float = 3.0, *, q: float = 0.5) -> Any:
        return p + q

    made = type("Made", (_Base,), {"factor": type("Factor", (), {"__get__": found})()})()
    return found, lambda x: x * made.factor


@_way
def a_constructor() -> Reached:
    def init(self: Any, x: Any, p: float = 3.0, *, q: float = 0.5) -> None:
        self.x = x * p + q

    made = type("Made", (), {"__init__": init})
    return init, lambda x: made(x).x


@_way
def a_length() -> Reached:
    def length(self: Any, p: float = 3.0, *, q: float = 0.5) -> int:
        return int(p + q * 2)

    made = type("Made", (), {"__len__": length})()
    return length, lambda x: x * len(made)


@_way
def a_superclass() -> Reached:
    f = _method()
    base = type("First", (_Base,), {"scaled": f})

    class Second(base):  # type: ignore[misc, valid-type]
        def scaled(self, x: aj.Tensor) -> Any:
            return super().scaled(x)

    made = Second()
    return f, lambda x: made.scaled(x)


def _layer() -> tuple[Any, nn.Module]:
    f = _method()
    return f, type("Layer", (nn.Module,), {"forward": f})()


@_way
def a_layer() -> Reached:
    return _layer()


@_way
def a_part_of_a_layer() -> Reached:
    f, layer = _layer()
    return f, nn.Sequential(nn.ReLU(), layer)


@_way
def a_forward_of_one_layer() -> Reached:
    layer, f = nn.ReLU(), _function()
    layer.forward = f
    return f, layer


@_way
def a_hook_of_a_layer() -> Reached:
    def hook(module: Any, args: Any, result: aj.Tensor, p: float = 3.0, *, q: float = 0.5) -> aj.Tensor:
        return result * p + q

    layer = nn.ReLU()
    layer.register_forward_hook(hook)
    return hook, layer


@_way
def a_hook_of_a_tensor() -> Reached:
    f = _function()

    def step(x: aj.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        y = leaf * 1
        y.register_hook(f)
        return aj.autograd.grad((y**2).sum(), leaf)

    return f, step


@_way
def a_backward_of_a_function() -> Reached:
    def backward(ctx: Any, g: aj.Tensor, p: float = 3.0, *, q: float = 0.5) -> aj.Tensor:
        return g * p + q

    members = {"forward": staticmethod(lambda ctx, x: x * 2), "backward": staticmethod(backward)}
    made = type("Made", (aj.autograd.Function,), members)

    def step(x: aj.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return aj.autograd.grad(made.apply(leaf).sum(), leaf)

    return backward, step


@_way
def an_attribute_of_a_wrapper() -> Reached:
    f = _function()
    made = _wrapped(f)
    made.orig = f
    return f, lambda x: made.orig(x) + made(x)


@_way
def one_of_several_of_a_factory() -> Reached:
    several = [_function() for _ in range(3)]
    return several[1], lambda x: [f(x) for f in several]


@_way
def the_compiled_function() -> Reached:
    f = _function()
    return f, f


def _set_defaults(f: FunctionType) -> None:
    f.__defaults__ = (*(f.__defaults__ or ())[:-1], 2.0)


def _set_named(f: FunctionType) -> None:
    f.__kwdefaults__ = {"q": 7.0}


def _change_named(f: FunctionType) -> None:
    f.__kwdefaults__["q"] = 9.0


def _set_code(f: FunctionType) -> None:
    """The same names, and twice as much added."""
    code = f.__code__
    at = code.co_varnames.index("q")
    names = (*code.co_varnames[:at], "r", *code.co_varnames[at + 1 :])
    assert "q" in code.co_varnames
    f.__kwdefaults__ = {"q": 1.0, "r": 4.0}
    f.__code__ = code.replace(co_varnames=names)


CHANGES: dict[str, Callable[[FunctionType], None]] = {
    "defaults": _set_defaults,
    "named defaults": _set_named,
    "one named default": _change_named,
    "code": _set_code,
}


def _results(make: Callable[[], Reached], change: Callable[[FunctionType], None], jit: Any) -> list[Any]:
    function, step = make()
    run = jit(step)
    found = []
    for k in range(5):
        if k == 2:
            change(function)
        elif k == 4:
            _set_defaults(function)
        found.append(_plain(run(aj.tensor([1.0, 2.0]))))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_function_is_made_of_is_followed(
    way: Callable[[], Reached], change: Callable[[FunctionType], None]
) -> None:
    expected = _results(way, change, lambda f: f)
    assert expected[1] != expected[2]  # otherwise it says nothing
    assert _results(way, change, aj.jit) == expected
