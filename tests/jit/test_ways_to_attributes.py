"""Attributes however a class keeps them and however they are asked for: absent, set later, changed, deleted."""

from __future__ import annotations

import argparse
import copy
import enum
import threading
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import distributions, nn, optim


class Plain:
    pass


class Slots:
    __slots__ = ("count", "scale")


class OfThread(threading.local):
    count = 0


class ByContainer(dict[str, Any]):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]
    __delattr__ = dict.__delitem__  # type: ignore[assignment]


class ByGet(dict[str, Any]):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__  # type: ignore[assignment]
    __delattr__ = dict.__delitem__  # type: ignore[assignment]


class ByCode(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]


class ItsOwnTable(dict[str, Any]):
    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


class ThroughSuper:
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


class Layer(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


class SlottedLayer(nn.Module):
    __slots__ = ("scale",)


class Wrapper(nn.Module):
    """Hands on what it has not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


KINDS: dict[str, Callable[[], Any]] = {
    "plain": Plain,
    "slots": Slots,
    "namespace": SimpleNamespace,
    "a thread's": threading.local,
    "a thread's, by class": OfThread,
    "arguments": argparse.Namespace,
    "by a container": ByContainer,
    "by get": ByGet,
    "by code": ByCode,
    "its own table": ItsOwnTable,
    "through super": ThroughSuper,
    "user's layer": Layer,
    "own layer": lambda: nn.Linear(1, 1),
    "sequence": lambda: nn.Sequential(nn.ReLU()),
    "layer with slots": SlottedLayer,
    "wrapper": Wrapper,
    "jitted layer": lambda: aj.jit(nn.Linear(1, 1)),
    "optimiser": lambda: optim.SGD([nn.Parameter(aj.ones(1))], 0.1),
    "distribution": lambda: distributions.Normal(0.0, 1.0),
}


def _tried(obj: Any) -> Any:
    try:
        return obj.scale
    except (AttributeError, KeyError):
        return None


def _has(obj: Any) -> Any:
    try:
        return obj.scale if hasattr(obj, "scale") else None
    except KeyError:
        return None


def _default(obj: Any) -> Any:
    try:
        return getattr(obj, "scale", None)
    except KeyError:
        return None


READS: dict[str, Callable[[Any], Any]] = {
    "getattr": _default,
    "hasattr": _has,
    "try": _tried,
    "dir": lambda obj: _tried(obj) if "scale" in dir(obj) else None,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_set_changed_and_deleted_between_calls(kind: str, read: str) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        obj, found = KINDS[kind](), []

        def step(x: Any) -> Any:
            scale = READS[read](obj)
            return x if scale is None else x * scale

        run = jit(step)
        for k in range(8):
            if k in (2, 3, 6):
                obj.scale = float(k)
            if k == 5:
                del obj.scale
            found.append(run(aj.ones(1)).item())
        return found

    assert shown(aj.jit) == shown(lambda function: function)


def _counts(obj: Any, x: Any) -> Any:
    obj.count += 1
    return x * obj.count


def _notes(obj: Any, x: Any) -> Any:
    obj.scale = x.sum().item()
    return x


def _keeps(obj: Any, x: Any) -> Any:
    obj.scale = x * 2
    return obj.scale + 1


def _averages(obj: Any, x: Any) -> Any:
    obj.scale = 0.5 * getattr(obj, "scale", 1.0) + x.sum().item() if "scale" in dir(obj) else 1.0
    return x


def _deletes(obj: Any, x: Any) -> Any:
    obj.scale = 3.0
    del obj.scale
    return x


WRITES = {"counts": _counts, "notes": _notes, "keeps": _keeps, "averages": _averages, "deletes": _deletes}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("optimiser", "distribution", "jitted layer")])
def test_what_the_step_assigns(kind: str, write: str) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        obj, found = KINDS[kind](), []
        if kind != "layer with slots" or write == "counts":
            obj.count = 0
        run = jit(lambda x: WRITES[write](obj, x))
        for k in range(6):
            if k == 4 and write == "counts":
                obj.count = 10
            found.append(run(aj.ones(2, dtype=aj.float64) * k).tolist())
            held = None if write in ("counts", "deletes") else obj.scale
            found.append(held.tolist() if isinstance(held, aj.Tensor) else held)
            found.append(getattr(obj, "count", None))
        return found

    assert shown(aj.jit) == shown(lambda function: function)


@pytest.mark.parametrize("walk", [copy.copy, copy.deepcopy, lambda obj: SimpleNamespace(**vars(obj))])
def test_names_that_an_object_gets_later_are_seen_by_who_walks_it(walk: Callable[[Any], Any]) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[float]:
        obj, found = Plain(), []
        obj.first = 1.0  # type: ignore[attr-defined]
        run = jit(lambda x: x * getattr(walk(obj), "scale", 3.0))
        for k in range(5):
            if k == 2:
                obj.scale = 9.0  # type: ignore[attr-defined]
            if k == 4:
                del obj.scale  # type: ignore[attr-defined]
            found.append(run(aj.ones(1)).item())
        return found

    assert shown(aj.jit) == shown(lambda function: function)


def _enumeration(x: Any) -> Any:
    class Kind(enum.Enum):
        FIRST = 1
        SECOND = 2

    return x * Kind.SECOND.value


def _called_enumeration(x: Any) -> Any:
    return x * enum.Enum("Kind", "FIRST SECOND").SECOND.value  # type: ignore[attr-defined]


def _tuple(x: Any) -> Any:
    return x * namedtuple("Pair", "a b")(1, 2).b


def _class(x: Any) -> Any:
    class Made:
        scale = 1.0

    Made.scale = 4.0
    return x * Made.scale * Made().scale


@pytest.mark.parametrize("step", [_enumeration, _called_enumeration, _tuple, _class])
def test_classes_that_a_step_makes_are_its_own(step: Callable[[Any], Any]) -> None:
    compiled = aj.jit(step)
    for _ in range(3):
        assert compiled(aj.ones(2)).tolist() == step(aj.ones(2)).tolist()


class Stubborn(list[Any]):
    """It refuses what nobody has asked of it."""

    def clear(self) -> None:
        raise ValueError("never")

    def __setitem__(self, *_: Any) -> None:
        raise ValueError("never")


class Once:
    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise ValueError("never twice")
        object.__setattr__(self, name, value)


def test_a_capture_ends_whatever_users_objects_refuse() -> None:
    """The thread stayed in the capture for good, and recorded whatever it computed."""
    items, once = Stubborn([3.0, 1.0]), Once()

    def sorts(x: Any) -> Any:
        items.append(x.sum().item())
        items.sort()
        return x * 2

    def assigns(x: Any) -> Any:
        once.value = x * 2  # type: ignore[attr-defined]
        return x * 3

    for step in (sorts, assigns):
        try:
            aj.jit(step)(aj.ones(2))
        except (aj.errors.TraceError, ValueError) as error:
            assert "never" in str(error)
        assert (aj.ones(2) + 1).tolist() == [2.0, 2.0]
    assert items == [1.0, 2.0, 3.0]
