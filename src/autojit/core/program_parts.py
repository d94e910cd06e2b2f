"""Parts of a program: which module's call, and which of forward, backward and update, an op of a step belongs to.

A module is named by its path in the outermost module around it: ``encoder.layer.3``. The names are found when a step is
captured, once per outermost module, and are plain text from then on: a step keeps no module alive.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
_MOST_FRAMES = 40  # on the way out to a method whose module calls this one: deeper calls name it less well


def _within(module: object) -> Iterator[tuple[str, Any]]:
    """A module and those in it with their paths, found without asking methods that users may have replaced."""
    found: dict[int, tuple[str, Any]] = {}
    waiting = [("", module)]
    while waiting:
        path, part = waiting.pop()
        if id(part) not in found:
            found[id(part)] = path, part
            inner = part.__dict__.get("_modules") or {}
            waiting += [(f"{path}.{name}".lstrip("."), one) for name, one in inner.items() if one is not None]
    yield from found.values()


def path_within(module: object, part: object) -> str | None:
    """The path of a module in another one, "" for itself; None if it is not in it."""
    return next((path for path, found in _within(module) if found is part), None)


class Root:
    """An outermost module that a step calls: its class, and the paths of all modules in it.

    ``is_prefixed``: the step calls several that have parts, so their paths begin with the class.
    """

    def __init__(self, module: object, label: str) -> None:
        self.label = label
        self.is_prefixed = False
        self.paths = {id(part): path for path, part in _within(module)}
        self.module: weakref.ref[Any] = weakref.ref(module)

    def shown(self, path: str) -> str:
        """The path as users read it."""
        if not path:
            return self.label
        return f"{self.label}.{path}" if self.is_prefixed else path

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Parameters and buffers by their names; none when the module is gone."""
        module = self.module()
        for path, part in () if module is None else _within(module):
            for kind in ("_parameters", "_buffers"):
                for name, found in (part.__dict__.get(kind) or {}).items():
                    if found is not None:
                        full = f"{path}.{name}".lstrip(".")
                        yield f"{self.label}.{full}" if self.is_prefixed else full, found


class Part:
    """What an op belongs to: the call of a module (``root`` and ``path``; neither outside of all) in a phase."""

    __slots__ = ("backward", "kind", "path", "phase", "root")

    def __init__(self, phase: str, root: Root | None = None, path: str = "", kind: str = "") -> None:
        self.phase = phase
        self.root = root
        self.path = path
        self.kind = kind
        self.backward: Part = self if phase == BACKWARD else Part(BACKWARD, root, path, kind)

    @property
    def module(self) -> str:
        """The path of the module, "" outside of all modules; of an update the optimiser's class."""
        return self.kind if self.root is None else self.root.shown(self.path)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.module, "" if self.phase == FORWARD else self.phase)))


PLAIN = Part(FORWARD)


class Parts:
    """The modules that one capture has met."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self._known: dict[tuple[int, int], Part] = {}

    def of(self, module: object, around: Part | None) -> Part:
        """The part that a call of ``module`` is, made by the code of ``around``."""
        root = None if around is None else around.root
        path = None if root is None else root.paths.get(id(module))
        kind = type(module).__name__
        if root is not None and path is None and around is not None:  # held by no attribute: named by its class
            path = f"{around.path}.{kind}".lstrip(".")
            root.paths.update({id(part): f"{path}.{name}".rstrip(".") for name, part in _within(module)})
        if root is None:
            root, path = self._root_of(module)
        assert path is not None
        known = self._known.get((id(root), id(module)))
        if known is None:
            known = self._known[id(root), id(module)] = Part(FORWARD, root, path, kind)
        return known

    def _root_of(self, module: object) -> tuple[Root, str]:
        """The outermost module known to hold this one, and the path in it."""
        for root in self.roots:
            if id(module) in root.paths and root.module() is not None:
                return root, root.paths[id(module)]
        found = _owner(module, sys._getframe(1))
        outer = module if found is None else found
        label = type(outer).__name__
        alike = sum(root.label.partition("(")[0] == label for root in self.roots)
        root = Root(outer, f"{label}({alike + 1})" if alike else label)
        self.roots.append(root)
        with_parts = [r for r in self.roots if len(r.paths) > 1 or any(r.tensors())]
        for each in with_parts:
            each.is_prefixed = len(with_parts) > 1
        return root, root.paths.get(id(module), "")

    def names(self) -> dict[int, str]:
        """The names of parameters and buffers, by the id of the tensor."""
        return {id(found): name for root in reversed(self.roots) for name, found in root.tensors()}


def _owner(module: object, frame: FrameType | None) -> Any:
    """The module whose method is running further out and which holds this one: of ``model.encode(x)``, the model."""
    found = None
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_varnames[:1] == ("self",):
            owner = frame.f_locals.get("self")
            if owner is not found and owner is not module and callable(getattr(type(owner), "named_modules", None)):
                held = module if found is None else found
                if any(part is held for _, part in _within(owner)):
                    found = owner
        frame = frame.f_back
    return found
