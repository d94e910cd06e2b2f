"""Lists, dictionaries and records among the arguments that the function changes: from then on it gets them themselves.

A capture gives a function copies, with stand-ins for what is in them; what it changes of a copy nobody would see. So an
argument that was changed is known by its identity, as any other object is: what the function reads of it is compared
before every run, and what it changes is done after it, as with a list that the function finds outside.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from autojit.jit.pytree import Args, Kwargs

Place = int | str
"""Of an argument: its number, or its name."""

MOST_KEPT = 8  # objects that were given last
MOST_OBJECTS = 16  # at one place: a step serves one of them


class Itself:
    """Stands for an object among the arguments of a call, to whoever takes these apart."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: object) -> None:
        self.value: Any = value


def plain(value: object) -> Any:
    """What the function is called with."""
    return value.value if type(value) is Itself else value


class GivenThemselves:
    """The arguments of one jitted function that are."""

    def __init__(self) -> None:
        self.places: frozenset[Place] = frozenset()
        self._known: OrderedDict[int, Itself] = OrderedDict()  # by id of the object
        self._last: dict[Place, tuple[Any, int]] = {}  # what was changed at a place, and in which call
        self._calls = 0
        self._objects: Counter[Place] = Counter()  # how many were given at a place since

    def begin(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments of a call that goes through Python, ``wrapped``."""
        self._calls += 1
        return self.wrapped(args, kwargs)

    def changed(self, places: Iterable[Place], args: Args, kwargs: Kwargs) -> bool:
        """These have been changed: where it is the same object once more, it is given itself from then on; whether all
        are.
        """
        for place in places:
            value = kwargs[place] if isinstance(place, str) else args[place]
            last, at = self._last.get(place, (None, 0))
            if last is value and at < self._calls and self._objects[place] <= MOST_OBJECTS:
                self.places |= {place}
            self._last[place] = value, self._calls
        return self.places.issuperset(places)

    def wrapped(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments of a call, with what stands for those that are given themselves."""
        places = self.places
        if not places:
            return args, kwargs
        made = tuple([self._of(value, k) if k in places else value for k, value in enumerate(args)])
        return made, {name: self._of(value, name) if name in places else value for name, value in kwargs.items()}

    def unwrapped(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments as the user gave them, also at places that another call has given up meanwhile."""
        if not self._objects:
            return args, kwargs
        return tuple(map(plain, args)), {name: plain(value) for name, value in kwargs.items()}

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """What natively takes the arguments of a call, as a function of the user's."""
        if not self.places:
            return call

        def run(*args: object, **kwargs: object) -> Any:
            args, kwargs = self.wrapped(args, kwargs)
            return call(*args, **kwargs)

        return run

    def given(self, args: Args, kwargs: Kwargs, first: int) -> tuple[Args, Kwargs]:
        """What a capture calls the function with; ``first``: where the user's arguments are, behind the step's own."""
        if not first:
            return self.unwrapped(args, kwargs)
        return (*args[:first], *self.unwrapped(*args[first:])), kwargs

    def _of(self, value: object, place: Place) -> Any:
        if type(value) is Itself or type(value) in _VALUES:
            return value
        found = self._known.get(id(value))
        if found is None:
            self._objects[place] += 1
            if self._objects[place] > MOST_OBJECTS:  # another one for each batch, or each episode
                self.places -= {place}
                return value
            found = self._known[id(value)] = Itself(value)
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return found


_VALUES = (type(None), bool, int, float, str, tuple)
