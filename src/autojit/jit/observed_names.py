"""The part of an observer that knows names: globals, builtins, imports, variables of enclosing functions."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autojit.jit.observed_functions import is_user_module, is_user_names
from autojit.jit.places import cell_content
from autojit.jit.replaced_code import note_name
from autojit.runtime.entry_spec import MISSING, CellGuard

if TYPE_CHECKING:
    from autojit.jit.guards import Guard


class ObservedNames:
    """The names that one capture has looked up."""

    if TYPE_CHECKING:
        places_read: dict[tuple[int, Any], Guard]
        made_names: set[int]
        outside: dict[int, Any]

        def enter(self, value: Any, name: str = "") -> Any: ...
        def is_of_step(self, holder: Any, key: Any) -> bool: ...
        def note(
            self, holder: Any, key: Any, name: str, read: Callable[[], Any], value: Any, native: Any = None
        ) -> None: ...
        def note_key(self, table: Any, key: Any, where: str, value: Any) -> None: ...

    def global_(self, value: Any, name: str) -> Any:
        """A global of the innermost observed frame (two calls up), which holds ``value``."""
        frame = sys._getframe(2)
        table = frame.f_globals
        if self.is_of_step(table, name) or name in _class_body(frame) or id(table) in self.made_names:
            return value
        known = self.places_read.get((id(table), name))
        if (known is None and (name in table or is_user_names(table))) or (known and known.expected is not value):
            self.note_key(table, name, f"global {name}", value if name in table else MISSING)
            if name not in table:
                note_name(self, builtins, name, f"builtin {name}")  # type: ignore[arg-type]
        return self.enter(value, name)

    def imported(self, module: Any, name: str) -> None:
        """What an import statement gave."""
        found = sys.modules.get(name)
        if found is not None and is_user_module(found):
            self.note_key(sys.modules, name, f"module {name}", found)

    def cell(self, value: Any, cell: Any, name: str) -> Any:
        """A variable of an enclosing function."""
        if id(cell) not in self.outside or self.is_of_step(cell, None):
            return value
        self.note(cell, None, name, lambda: cell_content(cell), value, CellGuard(cell, value))
        return self.enter(value, name)


def _class_body(frame: Any) -> Any:
    has_own = not frame.f_code.co_flags & 0x2 and frame.f_locals is not frame.f_globals
    return frame.f_locals if has_own else ()
