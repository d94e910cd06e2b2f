"""Which argument signatures of a jitted function are kept: those used last.

A capture keeps alive what it was made for: a Python object among the arguments, whose identity is part of the
signature, and whatever its guards compare. A program that passes a fresh object at every call would keep all of them.
So there is a number of signatures beyond which those whose captures ran least recently are forgotten, a few at a time.
A native call leaves no mark but its count; a signature was used if the count has moved since it was looked at last.

A cycle through more signatures than are kept would capture at every call. One that comes back, with the same objects,
doubles the number that is kept, up to a limit: one pass through the cycle is captured twice.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from autojit.jit.arguments import BAKED, Key
from autojit.jit.captures import Captures, nodes_of
from autojit.jit.guards import is_value
from autojit.jit.native_calls import linked
from autojit.jit.step import CompiledStep

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

LEAST_KEPT = 64  # signatures of one function
MOST_KEPT = 512
SHARE_FORGOTTEN = 4  # one of this many at a time: the collector, which frees what they held, has to look at everything


ALIKE = 32  # signatures that a new one is compared with; to compare it with 500 took as long as to run the call


def newest(roots: dict[Key, Captures]) -> list[Key]:
    """The signatures that came last, which tell what changes from call to call."""
    return list(islice(reversed(roots), ALIKE))[::-1]


class Forgetting:
    """How many signatures a function keeps, and what it remembers of those it has forgotten. Under its lock."""

    def __init__(self) -> None:
        self.limit = LEAST_KEPT
        self.captures = 0  # that were forgotten
        self._gone: dict[int, list[weakref.ref[Any]]] = {}  # by hash of the signature: the objects that it named

    def came_back(self, key: Key) -> bool:
        """Whether a signature that is captured now was forgotten; from now on more are kept."""
        objects = self._gone.pop(hash(key), None)
        if objects is None or any(ref() is None for ref in objects):  # another object, where a dead one was
            return False
        self.limit = min(2 * self.limit, MOST_KEPT)
        return True

    def surplus(self, roots: Mapping[Key, Captures], now: int) -> list[Key]:
        """The signatures to forget now: those used least recently."""
        for root in roots.values():
            entries = [node.entry for node in nodes_of(root.branch) if isinstance(node, CompiledStep)]
            runs = sum(native.entry.calls() for native in entries if native is not None)
            if runs != root.native_calls:
                root.native_calls, root.used_at = runs, now
        if len(roots) <= self.limit:
            return []
        most = self.limit - self.limit // SHARE_FORGOTTEN
        return sorted(roots, key=lambda key: roots[key].used_at)[: len(roots) - most]

    def forget(self, gone: Iterable[tuple[Key, Captures]]) -> None:
        """Remember by what to know them again."""
        for key, root in gone:
            self.captures += root.captures
            objects = _objects_of(root)
            if objects is not None:
                self._gone[hash(key)] = objects
        while len(self._gone) > MOST_KEPT:
            del self._gone[next(iter(self._gone))]


def make_room(function: JitFunction, newest: Key) -> None:
    """A function has got another signature: where there are too many, let go of captures not used for long.

    The caller has the function's lock. Another thread may be in a native call of such a capture: it stays what it is
    until the call has ended.
    """
    forgetting, roots = function.forgetting, function.roots
    if forgetting.came_back(newest):
        function.counts.note("what was captured for these arguments before had been forgotten")
        roots[newest].come = 1
    roots[newest].used_at = function.counts.calls
    surplus = forgetting.surplus(roots, function.counts.calls)
    if surplus:
        forgetting.forget([(key, roots.pop(key)) for key in surplus if key != newest])
        function.gathering.bound &= {at for modes, _ in roots for _, at in modes[-1]}  # tensors some are still bound to
        _let_go(function)
        if gc.isenabled():  # else collecting is the user's
            gc.collect()  # steps and their traces refer to each other, and their memory is not small


def forget_all(function: JitFunction) -> None:
    """Steps of another form of the function are of no use any more."""
    function.roots.clear()
    function.open_numbers.clear(function.rebinding is not None)
    _let_go(function)


def _let_go(function: JitFunction) -> None:
    """Hold no steps that are not in ``roots`` any more."""
    kept = set(function.steps())
    function._installed[:] = [None] * len(function._installed)
    roots = tuple(function.roots.values())
    function._decided = [tuple(d for d in decided if d.root in roots) for decided in function._decided]
    function._recent = [
        linked(natives, tuple(native for native in natives if native.step in kept), function._is_alone)
        for natives in function._recent
    ]


def _objects_of(root: Captures) -> list[weakref.ref[Any]] | None:
    """The objects whose identities are part of a signature; None where that cannot be said."""
    if not root.branch:
        return None
    leaves = root.branch[0].capture.arguments
    named = [leaf.original for leaf in leaves if leaf.kind in ("object", "bound")]
    try:
        return [weakref.ref(obj) for obj in named if not (isinstance(obj, BAKED) or is_value(obj))]
    except TypeError:  # its class has no weak references
        return None
