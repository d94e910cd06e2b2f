"""Names that are looked up in odd ways: replaced tables, metaclasses, class bodies, partials, evaluated code."""

from __future__ import annotations

import decimal
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.jit.function import JitFunction

Jit = Callable[[Callable[..., Any]], Any]


def same_everywhere(program: Callable[[Jit], Iterator[Any]]) -> None:
    """What a program yields with ``@aj.jit`` is what it yields without."""
    assert list(program(aj.jit)) == list(program(lambda f: f))


# -- whole tables of attributes


class Plain:
    pass


class Slotted:
    __slots__ = ("__dict__", "other")


class Pair(tuple[Any, ...]):
    pass


class Layer(nn.Module):
    pass


HOLDERS: dict[str, Callable[[], Any]] = {
    "object": Plain,
    "slots": Slotted,
    "tuple": Pair,
    "module": Layer,
    "function": lambda: lambda: None,
    "error": ValueError,
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda o, x: x * o.k,
    "getattr": lambda o, x: x * getattr(o, "k", 0.0),
    "hasattr": lambda o, x: x * (2.0 if hasattr(o, "z") else 3.0),
    "vars": lambda o, x: x * vars(o)["k"],
    "table": lambda o, x: x * o.__dict__["k"],
    "walked": lambda o, x: x * sum(v for v in vars(o).values() if type(v) is float),
    "changed": lambda o, x: (setattr(o, "k", o.k + 1.0), x * o.k)[1],
    "assigned": lambda o, x: (setattr(o, "q", x.sum().item()), x)[1],
}


@pytest.mark.parametrize("put", [setattr, object.__setattr__], ids=["setattr", "object"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_replaced_table_of_attributes_is_followed(holder: str, use: str, put: Callable[..., None]) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        o = HOLDERS[holder]()
        o.k = 1.0
        step = jit(lambda x: USES[use](o, x))

        def seen() -> Any:
            found = step(aj.ones(1)).item()
            return found, sorted((k, v) for k, v in vars(o).items() if k[0] != "_")

        yield from (seen() for _ in range(2))
        put(o, "__dict__", {**vars(o), "k": 2.0})
        yield from (seen() for _ in range(2))
        o.k = 3.0
        yield seen()
        put(o, "__dict__", {**vars(o), "k": 5.0, "z": 1.0})
        yield from (seen() for _ in range(2))

    same_everywhere(program)


def test_own_layers_follow_a_replaced_table() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        layer = nn.LeakyReLU(0.5)
        step = jit(lambda x: layer(x))
        yield step(-aj.ones(1)).item()
        layer.__dict__ = {**vars(layer), "negative_slope": 0.25}
        yield step(-aj.ones(1)).item()
        layer.negative_slope = 0.125
        yield step(-aj.ones(1)).item()

    same_everywhere(program)


class Other(Plain):
    pass


@pytest.mark.parametrize("name", ["__dict__", "__class__"])
def test_what_a_step_does_to_the_object_itself_runs_line_by_line(name: str) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        o: Any = Plain()
        o.k = 1.0

        def step(x: Any) -> Any:
            if name == "__dict__":
                o.__dict__ = {"k": o.k + 1.0}
            else:
                o.__class__ = Other if type(o) is Plain else Plain
            return x * o.k * (2 if type(o) is Plain else 3)

        run = jit(step)
        for _ in range(3):
            yield run(aj.ones(1)).item(), o.k, type(o)
        if isinstance(run, JitFunction):
            assert "line by line" in str(run.explain())

    same_everywhere(program)


# -- metaclasses, and methods of any kind

SPECIAL: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
    "__len__": (3, 5, lambda c, x: x * len(c)),
    "__contains__": (True, False, lambda c, x: x * (2 if 1 in c else 3)),
    "__getitem__": (2.0, 9.0, lambda c, x: x * c[0]),
    "__bool__": (True, False, lambda c, x: x * (2 if c else 3)),
    "__add__": (2.0, 3.0, lambda c, x: x * (c + 1.0)),
    "__radd__": (2.0, 3.0, lambda c, x: x * (1.0 + c)),
    "__call__": (2.0, 5.0, lambda c, x: x * c(1)),
    "__getattr__": (4.0, 6.0, lambda c, x: x * c.foo),
    "__instancecheck__": (True, False, lambda c, x: x * (2 if isinstance(5, c) else 3)),
    "__subclasscheck__": (True, False, lambda c, x: x * (2 if issubclass(int, c) else 3)),
    "__eq__": (True, False, lambda c, x: x * (2 if c == 4 else 3)),
    "__hash__": (3, 4, lambda c, x: x * hash(c)),
    "__lt__": (True, False, lambda c, x: x * (2 if c < 4 else 3)),
    "__neg__": (3.0, 4.0, lambda c, x: x * -c),
    "__float__": (3.0, 4.0, lambda c, x: x * float(c)),
    "__str__": ("a", "bb", lambda c, x: x * len(str(c))),
    "__enter__": (3.0, 4.0, lambda c, x: _entered(c, x)),
}


def _entered(c: Any, x: Any) -> Any:
    with c as value:
        return x * value


class Giving:
    """Something that can be called and is no function."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, *args: Any) -> Any:
        return self.value


FORMS: dict[str, Callable[[Any], Any]] = {
    "function": lambda value: lambda *args: value,
    "static": lambda value: staticmethod(lambda *args: value),
    "object": Giving,
    "partial": lambda value: functools.partial(lambda given, *args: given, value),
}


@pytest.mark.filterwarnings("ignore:functools.partial will be a method descriptor:FutureWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("owner", ["metaclass", "class"])
def test_special_methods_are_followed_wherever_python_finds_them(owner: str, name: str, form: str) -> None:
    first, second, use = SPECIAL[name]
    if owner == "class" and name in ("__instancecheck__", "__subclasscheck__"):
        return  # which only a metaclass has

    def program(jit: Jit) -> Iterator[Any]:
        has = {name: lambda *args: first, "__exit__": lambda *args: None}
        made: Any = type("Made", (type,) if owner == "metaclass" else (), has)
        asked: Any = made("Asked", (), {}) if owner == "metaclass" else made()
        step = jit(lambda x: use(asked, x))
        yield from (step(aj.ones(1)).item() for _ in range(2))
        setattr(made, name, FORMS[form](second))
        yield from (step(aj.ones(1)).item() for _ in range(2))

    same_everywhere(program)


def test_a_class_whose_metaclass_answers_to_every_name_is_taken() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        meta: Any = type("Meta", (type,), {"__len__": lambda c: 3, "__getattr__": lambda c, n: 4.0})
        o = meta("Made", (), {})()
        step = jit(lambda x: x * len(type(o)) * type(o).foo)
        yield step(aj.ones(1)).item()
        meta.__len__ = lambda c: 5
        yield step(aj.ones(1)).item()

    same_everywhere(program)


# -- class bodies, partials


def test_class_bodies_read_variables_of_enclosing_functions() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        options, scale, shadowed = {"k": 1.0}, 1.0, 1.0

        def step(x: Any) -> Any:
            class Inner:
                k = options["k"]
                s = scale
                shadowed = 5.0
                own = shadowed

            return x * Inner.k * Inner.s * Inner.own * shadowed

        run = jit(step)
        yield run(aj.ones(1)).item()
        options["k"] = 2.0
        yield run(aj.ones(1)).item()
        scale = 3.0
        yield run(aj.ones(1)).item()
        shadowed = 7.0
        yield run(aj.ones(1)).item()

    same_everywhere(program)


def test_what_a_jitted_partial_holds_is_followed() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        held = functools.partial(lambda t, x, k=1.0: t * x * k, aj.ones(1), k=2.0)
        step = jit(held)
        yield step(aj.ones(1)).item()
        held.keywords["k"] = 5.0
        yield step(aj.ones(1)).item()
        del held.keywords["k"]
        yield step(aj.ones(1)).item()
        held.__setstate__((held.func, (aj.ones(1) * 7,), {}, None))
        yield step(aj.ones(1)).item()
        held.__setstate__((lambda t, x: t + x, held.args, {}, None))
        yield step(aj.ones(1)).item()

    same_everywhere(program)


# -- evaluated code

PROGRAM = """
K, D, Z = 1.0, {"q": 1.0}, 0.0
class O: v = 1.0
def evaluate(x): return eval(E)
def execute(x):
    names = {"x": x}
    exec(S, globals(), names)
    return names["y"]
def assign(x):
    exec(G)
    return x * Z
def within(x): return x * eval(N, D)
def between(x): return eval(E, globals(), {"x": x})
"""
SOURCES: dict[str, tuple[str, str]] = {
    "E": ("x * K * O.v * D['q'] * (lambda z: z * K)(1.0)", "eval"),
    "S": ("class C:\n    k = K\ndef g(x): return x * C.k * O.v\ny = x * K * C.k", "exec"),
    "G": ("global Z\nZ = K * O.v", "exec"),
    "N": ("q * 2", "eval"),
}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["text", "code"])
@pytest.mark.parametrize("name", ["evaluate", "execute", "assign", "within", "between"])
def test_what_evaluated_code_reads_is_followed(name: str, is_compiled: bool) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        names: dict[str, Any] = {}
        exec(PROGRAM, names)
        names |= {k: compile(s, k, mode) if is_compiled else s for k, (s, mode) in SOURCES.items()}
        step = jit(names[name])
        yield from (step(aj.ones(1)).item() for _ in range(2))
        names["K"] = 2.0
        yield step(aj.ones(1)).item(), names["Z"]
        names["D"]["q"] = 4.0
        yield step(aj.ones(1)).item(), names["Z"]
        names["O"].v = 5.0
        yield step(aj.ones(1)).item(), names["Z"]

    same_everywhere(program)


def test_names_that_evaluated_code_stores_outside_are_stored_at_every_call() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        kept: dict[str, Any] = {}
        step = jit(lambda x: (exec("k = k + 1 if 'k' in dir() else 1", globals(), kept), x * kept["k"])[1])
        for _ in range(3):
            yield step(aj.ones(1)).item(), kept["k"]

    same_everywhere(program)


# -- what classes, modules and contexts tell


@pytest.mark.parametrize("name", ["__name__", "__qualname__", "__module__", "__doc__"])
def test_what_a_class_says_of_itself_is_followed(name: str) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        class Made:
            """One."""

        step = jit(lambda x: (x * 2, getattr(Made, name))[1])
        yield step(aj.ones(1))
        setattr(Made, name, "another")
        yield step(aj.ones(1))

    same_everywhere(program)


def test_a_module_may_begin_and_cease_to_answer() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        module: Any = types.ModuleType("module_of_a_test")
        step = jit(lambda x: x * getattr(module, "z", 1.0))
        yield step(aj.ones(1)).item()
        module.__getattr__ = lambda name: 2.0
        yield from (step(aj.ones(1)).item() for _ in range(2))
        module.__getattr__ = lambda name: 3.0
        yield step(aj.ones(1)).item()
        module.z = 4.0
        yield step(aj.ones(1)).item()
        del module.z, module.__getattr__
        yield step(aj.ones(1)).item()

    same_everywhere(program)


def test_the_decimal_context_is_followed() -> None:
    third = decimal.Decimal(3)

    def program(jit: Jit) -> Iterator[Any]:
        steps = [
            jit(lambda x: (x * 2, str(decimal.Decimal(1) / 3))[1]),
            jit(lambda x: (x * 2, str(1 / third))[1]),
        ]
        yield [step(aj.ones(1)) for step in steps]
        for precision in (5, 9, 5):
            with decimal.localcontext() as context:
                context.prec = precision
                yield [step(aj.ones(1)) for step in steps]
        yield [step(aj.ones(1)) for step in steps]

    same_everywhere(program)
