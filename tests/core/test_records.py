"""Records are frozen dataclasses from their first instance on."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

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
