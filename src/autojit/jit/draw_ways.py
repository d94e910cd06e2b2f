"""Ways of a call through what it draws: what Python decides on numbers before it draws the next one.

``if random.random() < 0.1: x = x * random.gauss(0, 1)`` draws once or twice. A capture notes which of its decisions on
numbers were made before each of its draws; before a later call is given the next number, they are asked again of those
that it has. Where none of the known ways goes on, nothing more is drawn: a capture tells what comes then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.ir.graph import Value
from autojit.jit.guards import same
from autojit.jit.number_guards import Decided, NumberGuard, number_in
from autojit.jit.number_ranges import ANY
from autojit.jit.pytree import flatten

if TYPE_CHECKING:
    from autojit.jit.arguments import ArgumentLeaf
    from autojit.jit.guards import Guard
    from autojit.jit.step import Capture


DRAWN = 1  # of the parts that a call has


def is_number(leaf: object) -> bool:
    """Whether decisions may be made on an argument as on a number of Python's: one of NumPy's is another class."""
    return type(leaf) in (int, float, complex) or isinstance(leaf, np.generic)


class Given(NamedTuple):
    """What a call has so far: leaves of what its places hold, of what has been drawn, and of its arguments.

    ``answers``: how its decisions went, as far as they were asked.
    """

    held: Sequence[Any]
    drawn: list[Any]
    arguments: Sequence[Any]
    answers: Decided

    @staticmethod
    def of(held: object, drawn: object, arguments: object) -> Given:
        """Of a call; the leaves of what is drawn may become more."""
        return Given(flatten(held)[0], flatten(drawn)[0], flatten(arguments)[0], {})

    def has(self, place: tuple[int, int]) -> bool:
        """Whether a leaf, by its part and number there, is there already: it may not have been drawn yet."""
        return place[0] != DRAWN or place[1] < len(self.drawn)

    def leaf(self, place: tuple[int, int]) -> Any:
        """A leaf; None where there is none."""
        part = (self.held, self.drawn, self.arguments)[place[0]]
        return part[place[1]] if place[1] < len(part) else None


class Asked(NamedTuple):
    """A decision on numbers, and the places of these numbers in what a call has."""

    question: NumberGuard
    places: tuple[tuple[int, int], ...]
    leaves: Sequence[ArgumentLeaf]


class Way:
    """What one capture has read, and has decided on numbers before each of its draws (``counts``: how many)."""

    def __init__(self, capture: Capture, counts: Sequence[int]) -> None:
        self.guards: Sequence[Guard] = capture.guards
        questions = capture.trace.number_guards
        ends = [*counts, len(questions)]
        starts = [0, *ends]
        held, drawn, *_ = capture.argument_tree.children[0].children
        firsts = 0, held.count, held.count + drawn.count
        self._inputs: dict[Value, tuple[tuple[int, int], ArgumentLeaf]] = {}
        self._baked: list[tuple[tuple[int, int], Any]] = []
        for k, leaf in enumerate(capture.arguments):
            part = sum(k >= first for first in firsts) - 1
            place = part, k - firsts[part]
            if leaf.value in capture.trace.number_inputs:
                self._inputs[leaf.value] = place, leaf
            elif leaf.kind == "object" and is_number(leaf.original):
                self._baked.append((place, leaf.original))
        self._classed = [
            (place, leaf)
            for place, leaf in self._inputs.values()
            if leaf.number_class is not None and leaf.number_class.span != ANY
        ]
        asked = [self._asked(question) for question in questions]
        self.questions = [asked[start:end] for start, end in zip(starts, ends, strict=False)]

    def _asked(self, question: NumberGuard) -> Asked:
        """A decision, with the places of what it is made of."""
        inputs = [self._inputs[value] for value in question.inputs]
        return Asked(question, tuple([place for place, _ in inputs]), [leaf for _, leaf in inputs])

    def asks(self, number: int) -> bool:
        """Whether anything was decided between the draw before and draw ``number``."""
        return number < len(self.questions) and bool(self.questions[number])

    def compares(self, number: int) -> bool:
        """Whether it looks at numbers of the call before draw ``number``."""
        return bool(self._baked or self._classed) or self.asks(number)

    def _is_of_kind(self, given: Given) -> bool:
        """Whether what a call has so far is as the capture takes it: what such numbers decide leaves no question."""
        if not all(same(given.leaf(place), value) for place, value in self._baked if given.has(place)):
            return False
        inputs = [(given.leaf(place), leaf) for place, leaf in self._classed if given.has(place)]
        return all(number_in(leaf, value) is not None for value, leaf in inputs)

    def goes_on(self, number: int, given: Given) -> bool:
        """Whether a call that has come as far as draw ``number`` this way decides as it did until it draws that."""
        if not self._is_of_kind(given):
            return False
        if not self.asks(number):
            return True
        answers = given.answers
        for question, places, leaves in self.questions[number]:
            found = answers.get((question.form, places))
            if found is None and not question.has_sizes:
                values = [(leaf, given.leaf(place)) for leaf, place in zip(leaves, places, strict=True)]
                found = None if question.goes(answers, places, values) is None else answers[question.form, places]
            if found is not question.outcome:
                return False
        return True
