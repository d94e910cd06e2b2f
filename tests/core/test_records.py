"""Records are dataclasses from their first instance on."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from autojit.core.records import finish, record


def declare() -> type:
    @record
    class Box:
        size: tuple[int, ...]
        unit: str = "mm"
        tags: list[str] = field(default_factory=list, compare=False)

    return Box


def test_a_record_is_a_frozen_dataclass() -> None:
    box = declare()
    first = box((1, 2))
    assert first == box(size=(1, 2), unit="mm") != box((1, 2), "m")
    assert hash(first) == hash(box((1, 2)))
    assert repr(first).endswith("Box(size=(1, 2), unit='mm', tags=[])")
    assert replace(first, unit="m").unit == "m"
    assert [f.name for f in fields(box)] == ["size", "unit", "tags"] == list(box.__match_args__)
    with pytest.raises(FrozenInstanceError):
        first.size = ()
    with pytest.raises(TypeError, match="size"):
        box()


def test_subclasses_inherit_fields_and_methods() -> None:
    box = declare()

    @record
    class Lid(box):  # type: ignore[misc]
        hinge: bool = True

    class Plain(box):  # type: ignore[misc]
        pass

    assert Lid((3,), hinge=False).hinge is False
    assert Plain((3,)).size == (3,)
    assert Plain((3,)) != box((3,))


def test_a_plain_dataclass_inherits_the_fields_of_a_finished_record() -> None:
    box = declare()
    finish(box)

    @dataclass(frozen=True)
    class Crate(box):  # type: ignore[misc]
        planks: int = 4

    assert [f.name for f in fields(Crate)] == ["size", "unit", "tags", "planks"]


def test_equality_can_be_left_to_the_class() -> None:
    @record(eq=False)
    class Token:
        name: str

    assert Token("a") != Token("a")


def test_threads_that_make_the_first_instances_all_get_one() -> None:
    for _ in range(20):
        box = declare()
        start = threading.Barrier(4)
        made: list[object] = []

        def make(box: type = box, start: threading.Barrier = start, made: list[object] = made) -> None:
            start.wait()
            made.append(box((1,)))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [box((1,))] * 4


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("eq", [True, False])
def test_a_record_is_what_dataclass_makes_of_the_same_class(frozen: bool, eq: bool) -> None:
    """Signature, values, comparison, hash, repr, refusals: over each kind of field, on both sides of inheritance."""

    def declare(decorate: Callable[[type], Any]) -> tuple[Any, Any]:
        @decorate
        class Base:
            size: int
            unit: str = "mm"
            _: KW_ONLY
            tags: list[str] = field(default_factory=list, compare=False)
            secret: int = field(default=3, repr=False)

        @decorate
        class Derived(Base):
            lid: bool = True
            count: int = field(default=0, init=False)
            parts: tuple[int, ...] = field(default_factory=tuple, init=False)
            weight: float = field(init=False)

            def __post_init__(self) -> None:
                object.__setattr__(self, "weight", self.size * 2.0)

        return Base, Derived

    def seen(pair: tuple[Any, Any]) -> list[object]:
        told: list[object] = []
        for cls, other in (pair, pair[::-1]):
            first, same, third = cls(2), cls(size=2, unit="mm"), cls(2, "m", tags=["a"], secret=4)
            told += [repr(first), repr(third), first == same, first == third, first == other(2), cls.__match_args__]
            told += [[f.name for f in fields(cls)], vars(third), replace(third, size=5).size, vars(copy.copy(third))]
            told += [str(inspect.signature(cls.__init__)), cls.__hash__ is None, cls.__hash__ is object.__hash__]
            told.append(cls.__hash__ is None or (hash(first) == hash(same)))
            for change in (lambda o: setattr(o, "size", 7), lambda o: delattr(o, "size"), lambda o: setattr(o, "x", 1)):
                try:
                    change(first)
                except Exception as error:
                    told.append((type(error), str(error)))
                told.append(dict(vars(first)))
            for wrong in ((), (1, 2, 3, 4)):
                with pytest.raises(TypeError) as raised:
                    cls(*wrong)
                told.append(str(raised.value))
        return told

    assert seen(declare(record(frozen=frozen, eq=eq))) == seen(declare(dataclass(frozen=frozen, eq=eq)))
