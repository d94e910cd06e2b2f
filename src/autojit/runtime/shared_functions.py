"""Functions of written-out modules as objects of their own, compiled and loaded once for all modules that have them.

The kernel of a convolution is a module of ten functions, of which only the one that walks the whole knows all sizes.
Convolutions of other sizes repeat the others: 21 kernels of a U-Net have 70 functions between them, not 210. What is
never inlined is taken out of the module and named by what it is, so that equal names are equal code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from autojit.codegen.module_text import WRITTEN_OUT

_NAME = re.compile(r"@([\w.]+)")
_PARAMETER = re.compile(r" %[\w.]+(?=[,)])")
_APART = re.compile(r"internal [^\n]*\) nounwind noinline[^\n{]* \{\n")


class Apart(NamedTuple):
    """A module without the functions that are taken out, and the modules of these by their new names."""

    text: str
    functions: dict[str, str]  # callees first


def taken_apart(text: str) -> Apart:
    """The module of a kernel in parts; whole where it is not written out. Time O(text)."""
    if not text.startswith(WRITTEN_OUT):
        return Apart(text, {})
    _, *pieces = text.split("\ndefine ")
    pieces[-1], end, rest = pieces[-1].partition("\n}\n")
    pieces[-1] += end.rstrip("\n")
    return _Parts(pieces, rest.split("\n")).apart()


class _Parts:
    """The pieces of one module.

    Args:
        pieces: definitions of functions, without the first word.
        rest: lines of constants, attributes and metadata.
    """

    def __init__(self, pieces: Iterable[str], rest: Iterable[str]) -> None:
        self.pieces = {_name_of(piece): piece for piece in pieces}
        self.constants = {line[1 : line.index(" ")]: line for line in rest if line.startswith("@")}
        self.tail = [line for line in rest if not line.startswith("@")]
        self.made: dict[str, str] = {}  # function -> its new name
        self.functions: dict[str, str] = {}

    def apart(self) -> Apart:
        return Apart(self._module(name for name in self.pieces if not self._is_apart(name)), self.functions)

    def _is_apart(self, name: str) -> bool:
        return _APART.match(self.pieces[name]) is not None

    def _module(self, names: Iterable[str]) -> str:
        """A module of functions, with the constants and inlined functions that they use; others are declared."""
        waiting, kept = list(names), dict[str, str]()
        declared: dict[str, str] = {}
        for name in waiting:  # grows meanwhile
            if name in kept:
                continue
            text = self.pieces.get(name) or self.constants[name]
            new: dict[str, str] = {}
            for used in dict.fromkeys(_NAME.findall(text)):
                if used in self.pieces and used != name and self._is_apart(used):
                    new[used] = declared[used] = self._new_name(used)
                elif used in self.pieces or used in self.constants:
                    waiting.append(used)
            kept[name] = _NAME.sub(lambda found, new=new: f"@{new.get(found[1], found[1])}", text) if new else text  # type: ignore[misc]
        lines = [f"define {kept[name]}" for name in kept if name in self.pieces]
        lines += [_declaration(self.pieces[name], name, new) for name, new in declared.items()]
        lines += [kept[name] for name in kept if name in self.constants]
        return "\n".join([WRITTEN_OUT, *lines, *self.tail])

    def _new_name(self, name: str) -> str:
        """The name of a function that is taken out: it follows from its text, and so from what it calls."""
        found = self.made.get(name)
        if found is None:
            text = self._module([name]).replace("\ndefine internal ", "\ndefine ", 1)
            named = _known.get(text)
            if named is None:
                new = f"{name}.{sha256(text.encode()).hexdigest()[:32]}"
                named = _known[text] = new, text.replace(f"@{name}(", f"@{new}(")
            found = self.made[name] = named[0]
            self.functions[found] = named[1]
        return found


_known: dict[str, tuple[str, str]] = {}
"""By the text of a function's module, its name and the module under that name, which is kept with its code anyway."""


def _name_of(piece: str) -> str:
    found = _NAME.search(piece)
    assert found is not None
    return found[1]


def _declaration(piece: str, name: str, new: str) -> str:
    head = piece.partition(" nounwind")[0].removeprefix("internal ")
    return f"declare {_PARAMETER.sub('', head)}".replace(f"@{name}(", f"@{new}(")
