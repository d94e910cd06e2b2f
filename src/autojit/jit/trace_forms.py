"""What a capture notes of arguments whose views or forms no step settles: their calls run line by line."""

from __future__ import annotations

from autojit.tensor.tensor import Tensor


class TraceForms:
    """The part of a trace that knows of which tensors the form or the views have got ahead of the history."""

    arguments: list[Tensor]

    def __init__(self) -> None:
        self.refreshed: dict[int, Tensor] = {}  # bases of views that got new histories with them, by id
        self.unrecorded: list[Tensor] = []  # arguments whose form is another than their history shows

    def note_refreshed(self, base: Tensor) -> None:
        if base._array is None:
            self.refreshed[id(base)] = base

    def note_form(self, t: Tensor) -> bool:
        is_argument = any(t is x for x in self.arguments)
        if is_argument:
            self.unrecorded.append(t)
        return is_argument
