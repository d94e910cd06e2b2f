"""Compiled methods: an object shows nothing of its steps, has its own, and loses them when it goes."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import gc
import pickle
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn

X = aj.tensor([1.0, 2.0])


class Plain:
    factor = 2.0

    def __init__(self, scale: float = 1.0) -> None:
        self.scale, self.total, self.calls = scale, aj.zeros(2), 0

    @aj.jit
    def step(self, x: Any) -> Any:
        self.total = self.total + x * self.scale
        self.calls += 1
        return self.total * 1

    @classmethod
    @aj.jit
    def class_over(cls, x: Any) -> Any:
        return x * cls.factor

    @aj.jit
    @classmethod
    def class_under(cls, x: Any) -> Any:
        return x * cls.factor

    @staticmethod
    @aj.jit
    def static_over(x: Any) -> Any:
        return x * 3

    @aj.jit
    @staticmethod
    def static_under(x: Any) -> Any:
        return x * 3

    @property
    @aj.jit
    def property_over(self) -> Any:
        return self.total * 2

    @aj.jit
    @property
    def property_under(self) -> Any:
        return self.total * 2

    @functools.cached_property
    @aj.jit
    def cached(self) -> Any:
        return self.total * 2

    @aj.jit
    @functools.cached_property
    def cached_under(self) -> Any:
        return self.total * 2

    @property
    def doubled(self) -> Any:
        return self.total * 2

    @aj.jit
    @doubled.setter
    def assigned(self, value: Any) -> None:
        self.total = value / 2

    @aj.jit(verify="always")
    def verified(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls

    partial = functools.partialmethod(step, aj.ones(2))

    @aj.jit
    def __call__(self, x: Any) -> Any:
        return x * self.scale


class Derived(Plain):
    factor = 5.0

    @aj.jit
    def step(self, x: Any) -> Any:
        return super().step(x) + 1


class Slotted:
    __slots__ = ("calls", "factor", "scale", "total")

    def __init__(self, scale: float = 1.0) -> None:
        self.scale, self.total, self.calls = scale, aj.zeros(2), 0

    @aj.jit
    def step(self, x: Any) -> Any:
        self.total = self.total + x * self.scale
        self.calls += 1
        return self.total * 1


class SlottedWeak(Slotted):
    __slots__ = ("__weakref__",)


@dataclasses.dataclass
class Record:
    scale: float = 1.0
    calls: int = 0
    total: Any = dataclasses.field(default_factory=lambda: aj.zeros(2), compare=False)
    step = Plain.step


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 1.0

    @aj.jit
    def step(self, x: Any) -> Any:
        return x * self.scale


class Items(list[Any]):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__([scale])

    @aj.jit
    def step(self, x: Any) -> Any:
        return x * self[0]


class Pair(tuple[Any, ...]):
    __slots__ = ()

    def __new__(cls, scale: float = 1.0) -> Pair:
        return super().__new__(cls, (scale,))

    @aj.jit
    def step(self, x: Any) -> Any:
        return x * self[0]


class Choice(enum.Enum):
    ONE = 1.0
    TWO = 2.0

    @aj.jit
    def step(self, x: Any) -> Any:
        return x * self.value


class Layer(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.weight = scale, nn.Parameter(aj.ones(2))

    @aj.jit
    def step(self, x: Any) -> Any:
        return (x * self.weight).detach() * self.scale


class Meta(type):
    @aj.jit
    def step(cls, x: Any) -> Any:
        return x * cls.scale  # type: ignore[attr-defined]


class OfMeta(metaclass=Meta):
    scale = 3.0


class Base(ABC):
    scale = 1.0

    @abstractmethod
    def step(self, x: Any) -> Any: ...


class Concrete(Base):
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @aj.jit
    def step(self, x: Any) -> Any:
        return x * self.scale


MAKERS: dict[str, Callable[..., Any]] = {
    "plain": Plain,
    "derived": Derived,
    "slots": Slotted,
    "weak slots": SlottedWeak,
    "record": Record,
    "frozen": Frozen,
    "list": Items,
    "tuple": Pair,
    "enum": Choice,
    "layer": Layer,
    "abstract": Concrete,
}


def several(obj: Any, call: Callable[..., Any]) -> list[Any]:
    return [call(obj, X * k).tolist() for k in (1, 2, 1)]


def eagerly(obj: Any, call: Callable[..., Any]) -> list[Any]:
    with aj.eager():
        return several(obj, call)


def step(obj: Any, x: Any) -> Any:
    return obj.step(x)


def shown(obj: Any) -> Any:
    return {k: v.tolist() if isinstance(v, aj.Tensor) else v for k, v in getattr(obj, "__dict__", {}).items()}


@pytest.mark.parametrize("kind", MAKERS)
def test_each_object_has_steps_of_its_own_and_shows_none(kind: str) -> None:
    make = MAKERS[kind]
    one, two, eager_one, eager_two = (make(s) for s in (1.0, 2.0, 1.0, 2.0))
    names = list(getattr(one, "__dict__", {}))
    for _ in range(2):
        for obj, eager in ((one, eager_one), (two, eager_two)):
            assert several(obj, step) == eagerly(eager, step)
            if kind != "layer":
                assert shown(obj) == shown(eager)
    assert list(getattr(one, "__dict__", {})) == names
    assert one.step is one.step and one.step.stats()["captures"] >= 1


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda obj: pickle.loads(pickle.dumps(obj)),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", ["plain", "derived", "slots", "record", "frozen", "list", "layer", "abstract"])
def test_a_copy_runs_on_itself(kind: str, way: str) -> None:
    found = []
    for run in (eagerly, several):
        obj = MAKERS[kind](2.0)
        told = [run(obj, step)]
        other = COPIES[way](obj)
        if kind in ("plain", "derived", "slots", "record", "layer", "abstract"):
            other.scale = 10.0
        told += [run(other, step), run(obj, step), run(other, step)]
        found.append((told, shown(obj) == shown(COPIES[way](obj)) if kind != "layer" else None))
    assert found[0] == found[1]


def test_comparisons_and_forms_see_no_steps() -> None:
    one, other = Record(), Record()
    one.step(X), one.step(X)
    other.calls = 2
    assert one == other and repr(one).startswith("Record(") and set(dataclasses.asdict(one)) == set(vars(Record()))
    assert dataclasses.replace(one, scale=2.0).step(X).tolist() == [4.0, 8.0]
    assert vars(Frozen()).keys() == vars(Frozen()).keys() and Frozen() == Frozen() and hash(Frozen()) == hash(Frozen())


FORMS = ("class_over", "class_under", "static_over", "static_under")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kind", [Plain, Derived])
def test_methods_of_classes_are_compiled(kind: Any, name: str) -> None:
    calls = (lambda: getattr(kind, name)(X), lambda: getattr(kind(), name)(X), lambda: getattr(Plain, name)(X))
    for call in calls * 2:
        with aj.eager():
            eager = call().tolist()
        assert call().tolist() == eager
    before = kind.factor
    try:
        kind.factor = 7.0
        assert getattr(kind, name)(X).tolist() == (X * (7.0 if name.startswith("class") else 3.0)).tolist()
    finally:
        kind.factor = before
    assert "_jit" not in str(list(vars(kind)))


@pytest.mark.parametrize("name", ["property_over", "property_under", "cached", "cached_under", "assigned"])
def test_properties_are_compiled(name: str) -> None:
    one, two = Plain(), Plain(2.0)
    for obj in (one, two, one):
        obj.step(X)
        vars(obj).pop("cached", None)
        vars(obj).pop("cached_under", None)
        assert getattr(obj, name).tolist() == (obj.total * 2).tolist()
    for k in range(3):
        one.assigned = X * k
        assert one.total.tolist() == (X * k / 2).tolist()


def test_other_ways_to_call_a_method() -> None:
    obj, eager = Plain(2.0), Plain(2.0)
    calls: list[Callable[[Any], Any]] = [
        lambda o: Plain.step(o, X),
        lambda o: o.partial(),
        lambda o: o(X),
        lambda o: o.verified(X),
        lambda o: functools.partial(o.step, X)(),
    ]
    for _ in range(3):
        for call in calls:
            with aj.eager():
                expected = call(eager).tolist()
            assert call(obj).tolist() == expected
    assert OfMeta.step(X).tolist() == (X * 3).tolist()
    assert list(vars(obj)) == list(vars(eager))


def test_steps_go_with_their_object() -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself, self.w = self, aj.ones(2)

        @aj.jit
        def step(self, x: Any) -> Any:
            return x * self.w

        @aj.jit
        def other(self, x: Any) -> Any:
            return x + self.w

    kept = Knot()
    seen = []
    for k in range(6):
        obj = Knot() if k else kept
        assert obj.step(X).tolist() == [1.0, 2.0] and obj.other(X).tolist() == [2.0, 3.0]
        seen += [weakref.ref(obj), weakref.ref(obj.step), weakref.ref(obj.other)]
    del obj
    first = kept.step
    gc.collect()
    assert [ref() is not None for ref in seen] == [True] * 3 + [False] * 15
    assert kept.step is first and list(vars(kept)) == ["itself", "w"]
    assert kept.step(X).tolist() == [1.0, 2.0] and first.stats()["captures"] == 1


def test_a_collection_meanwhile_loses_no_steps() -> None:
    obj, errors = Plain(), []

    def work() -> None:
        try:
            for _ in range(50):
                assert obj(X).tolist() == [1.0, 2.0]
        except Exception as error:  # pragma: no cover
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        gc.collect()
    for thread in threads:
        thread.join()
    assert not errors and "_jit" not in str(list(vars(obj)))


@aj.jit
def named(x: Any) -> Any:
    return x * 2


def not_decorated(x: Any) -> Any:
    return x * 5


compiled = aj.jit(not_decorated, dynamic=False)


def test_a_compiled_function_is_pickled_by_reference() -> None:
    assert pickle.loads(pickle.dumps(named)) is named and copy.copy(named) is named
    again = pickle.loads(pickle.dumps(compiled))
    assert again.function is not_decorated and again(X).tolist() == [5.0, 10.0]
    assert again.options() == compiled.options()
    obj = Plain()
    obj.step(X)
    other = pickle.loads(pickle.dumps(obj.step))
    assert other(X).tolist() == [2.0, 4.0] and obj.calls == 1
    assert pickle.loads(pickle.dumps(Plain.step)) is Plain.step
    assert pickle.loads(pickle.dumps(Plain.static_over)) is Plain.static_over
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(aj.jit(lambda x: x))


@dataclasses.dataclass
class State:
    count: int
    w: Any
    log: list[Any] = dataclasses.field(default_factory=list)


def _attributes(s: Any, x: Any) -> Any:
    s.count += 1
    s.w = s.w + x * s.count
    return s.w * 2


def _new_attribute(s: Any, x: Any) -> Any:
    s.more = x * s.count
    return x


def _parts(s: Any, x: Any) -> Any:
    s.log.append(x.sum().item())
    return len(s.log) * x


def _some(s: Any, x: Any) -> Any:
    if x.sum() > 4:
        s.count = s.count + 10
    return x * s.count


def _dictionary(s: Any, x: Any) -> Any:
    s["w"] = s["w"] + x
    s["count"] += 1
    return s["w"] * s["count"]


def _list(s: Any, x: Any) -> Any:
    s.append(x * 2)
    return s[0] * len(s)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "attributes": (lambda: State(0, aj.zeros(2)), _attributes),
    "new attribute": (lambda: State(1, aj.zeros(2)), _new_attribute),
    "parts": (lambda: State(0, aj.zeros(2)), _parts),
    "in some calls": (lambda: State(1, aj.zeros(2)), _some),
    "dictionary": (lambda: {"count": 0, "w": aj.zeros(2)}, _dictionary),
    "list": (lambda: [aj.ones(2)], _list),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_a_function_does_to_its_arguments_it_does(case: str) -> None:
    make, function = CHANGES[case]
    given, eager = make(), make()
    fast = aj.jit(function)
    for k in (1, 2, 1, 2, 2, 1, 1, 2, 1, 2, 1, 1):
        expected = function(eager, X * k)
        assert repr(fast(given, X * k)) == repr(expected)
        assert repr(given) == repr(eager) and (case != "new attribute" or given.more.tolist() == eager.more.tolist())
    if case not in ("in some calls", "list"):  # whose decisions, and contents that are read, are others in every call
        assert fast.stats()["native_calls"] >= 5
