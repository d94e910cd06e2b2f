"""The work of a body on other buffers: those of one turn of a loop, or of the step around a branch."""

from __future__ import annotations

from collections.abc import Mapping

from autojit.codegen.lowered import Conditional, DeviceCopy, DeviceFill, DeviceWork, Launch, Offset, Scratch
from autojit.ir.graph import Value

Place = Value | Offset | Scratch


class MovedWork:
    """See the module; who derives from it says where values of the body are.

    Args:
        partials: where the partial results of its kernels are in all turns.
    """

    def __init__(self, partials: Mapping[Launch, Scratch | None]) -> None:
        self._partials = partials

    def place_of(self, value: Value) -> Place:
        """Where a value of the body is."""
        raise NotImplementedError

    def moved(self, item: DeviceWork, commits: bool) -> DeviceWork:
        """An item of the body's work, there."""
        if isinstance(item, Conditional):
            work = tuple(self.moved(inner, commits) for inner in item.work)
            return Conditional(self._at(item.condition), work, item.repeats, item.is_negated)
        commits = commits or item.commits
        if isinstance(item, DeviceCopy):
            return DeviceCopy(self._at(item.target), self._at(item.source), item.size_bytes, commits)
        if isinstance(item, DeviceFill):
            return DeviceFill(self._at(item.target), item.size_bytes, commits)
        buffers = tuple([self._at(place) for place in item.buffers])
        return Launch(item.kernel, buffers, item.label, item.code, commits, item.nodes, self._partials[item])

    def _at(self, place: Place) -> Place:
        if isinstance(place, Scratch):
            return place
        if isinstance(place, Value):
            return self.place_of(place)
        if isinstance(place.value, Scratch):
            return place
        size_bytes = place.size_bytes
        if size_bytes is None:
            size_bytes = place.value.type.size_bytes - place.offset_bytes
        outer = self.place_of(place.value)
        if isinstance(outer, Offset):
            return Offset(outer.value, outer.offset_bytes + place.offset_bytes, size_bytes)
        return Offset(outer, place.offset_bytes, size_bytes)
