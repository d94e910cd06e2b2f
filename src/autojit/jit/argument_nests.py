"""Lists, dictionaries and records among the arguments of a call: they are the caller's objects.

A capture gives the function copies of them, which hold stand-ins. So what the function hands on is named by where it
is in the arguments, and is the object that is there at each call; which object one is cannot be answered
by a copy, nor can one be changed: such calls run line by line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import Any

from autojit.core.source import here
from autojit.jit.guards import PRIMITIVES
from autojit.jit.line_by_line import AskedIdentity, ChangedArguments, ChangesItself
from autojit.jit.places import is_a, static_attribute
from autojit.jit.pytree import TreeSpec, flatten, taken_apart
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

NestPath = tuple[int, ...]
"""The numbers of the parts that lead from ``(args, kwargs)`` to an object in them."""


class ArgumentNests:
    """The copies that a capture is given. ``paths``: where they are, by id; None: nobody could tell.

    ``root``: where the tuples and the dictionary are that the user's arguments, and what else a step is given, are in.
    """

    def __init__(
        self, args: object, kwargs: object, tree: TreeSpec, leaves: Sequence[Any], root: NestPath = ()
    ) -> None:
        self._given = args, kwargs
        self._tree, self._leaves, self._root = tree, leaves, root
        self._held = dict(self._nests())
        self._copies: list[Any] = []
        self.paths: dict[int, NestPath | None] = {id(nest): path for path, nest in self._held.items()}

    def _nests(self) -> Iterator[tuple[NestPath, Any]]:
        for k, arguments in enumerate(found_at(self._given, self._root)):
            for j, value in enumerate(arguments.values() if is_a(arguments, dict) else arguments):
                yield from _nests_in(value, (*self._root, k, j))

    def add_copies(self, values: Sequence[Any]) -> None:
        """Copies with stand-ins for numbers, which no call has."""
        for nest in (nest for value in values for _, nest in _nests_in(value, ()) if id(nest) not in self.paths):
            self.paths[id(nest)] = None
            self._copies.append(nest)

    def number_of(self, leaf: object) -> int | None:
        """Which of the leaves of the user's arguments an object is; None: it is not one."""
        given = found_at(self._given, self._root)[-2:]
        return next((k for k, one in enumerate(flatten(tuple(given))[0]) if one is leaf), None)

    def is_unnamed(self, value: object) -> bool:
        """Whether it is one of those."""
        return self.paths.get(id(value), ()) is None

    def check(self) -> None:
        """When the function has run.

        Raises:
            ChangedArguments: it has changed one.
        """
        leaves, now = flatten(self._given)
        is_other = now != self._tree or any(a is not b for a, b in zip(leaves, self._leaves, strict=True))
        if is_other or any(nest is not self._held.get(path) for path, nest in self._nests()):
            places = self._changed()
            if not places:
                raise ChangedArguments
            error = ChangesItself()
            error.places = places
            raise error

    def _changed(self) -> list[int | str]:
        """The numbers and names of the user's arguments that are changed lists, dictionaries or records."""
        tree, leaves = self._tree, list(self._leaves)
        for k in self._root:
            tree = tree.children[k]
        firsts, kinds = [child.count for child in tree.children[:-2]], tree.children[-2:]
        args, kwargs = found_at(self._given, self._root)[-2:]
        found: list[int | str] = []
        first = sum(firsts)
        named = [*enumerate(args), *kwargs.items()]
        specs = [*kinds[0].children, *kinds[1].children]
        for (place, value), spec in zip(named, specs, strict=False):
            now, tree_now = flatten(value)
            before = leaves[first : first + spec.count]
            first += spec.count
            is_same = tree_now == spec and all(a is b for a, b in zip(now, before, strict=True))
            if spec.kind is not None and not issubclass(spec.kind, tuple) and not is_same:
                found.append(place)
        return found

    def identified(self, left: object, right: object) -> None:
        """``left is right``: of two copies of one object, or a copy and what it is a copy of, nobody could tell."""
        if left is not right and type(left) is type(right) and (id(left) in self.paths or id(right) in self.paths):
            self.named()

    def compared(self, left: object, right: object) -> None:
        """``left == right``, which for some records is the same question."""
        if self.paths and static_attribute(type(left), "__eq__") is vars(object)["__eq__"]:
            self.identified(left, right)

    def searched(self, container: object, item: object) -> None:
        """``item in container``: objects are equal to themselves."""
        for part in container if self.paths and is_a(container, list | tuple | deque) else ():
            if part is item:
                return
            self.identified(part, item)

    def used_as_key(self, value: object) -> None:
        """The identity of an object is asked for."""
        if id(value) in self.paths:
            self.named()

    def named(self) -> None:
        """End the capture: which object of the caller's it is counts."""
        trace: Any = state.trace
        trace.give_up(AskedIdentity(str(here())))


def has_containers(tree: TreeSpec) -> bool:
    """Whether arguments, a tuple or the dictionary of those that are named, have lists, dictionaries or records."""
    return any(_has_nests(child) for child in tree.children)


def _has_nests(tree: TreeSpec) -> bool:
    return tree.kind is not None and (not issubclass(tree.kind, tuple) or any(map(_has_nests, tree.children)))


def reaches(value: Any, objects: Container[int]) -> bool:
    """Whether one of the ``objects``, by id, is among the arguments ``value``; of records, their attributes."""
    kind = type(value)
    if kind in _WITHOUT_PARTS:
        return False
    if kind is list or kind is tuple:
        return id(value) in objects or any(reaches(part, objects) for part in value if type(part) not in _WITHOUT_PARTS)
    found = taken_apart(value)
    if found is None:
        return False
    if id(value) in objects or id(getattr(value, "__dict__", None)) in objects:
        return True
    return any(reaches(part, objects) for part in found[1])


_WITHOUT_PARTS = frozenset((Tensor, *PRIMITIVES))


def _nests_in(value: object, path: NestPath) -> Iterator[tuple[NestPath, Any]]:
    found = taken_apart(value)
    if found is not None:
        if not is_a(value, tuple):  # which are values
            yield path, value
        for k, part in enumerate(found[1]):
            yield from _nests_in(part, (*path, k))


def found_at(given: object, path: NestPath) -> Any:
    """What is there in the arguments of a call."""
    for k in path:
        found = taken_apart(given)
        assert found is not None
        given = tuple(found[1])[k]
    return given
