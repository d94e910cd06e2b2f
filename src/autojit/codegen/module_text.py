"""An LLVM module under construction: functions, what they refer to, metadata, words of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar


@dataclass(frozen=True)
class Signature:
    """A function as its callers see it.

    Args:
        symbol: its name.
        parameters: their types and names, ``"ptr context, i64 chunk"``.
        returns: its type.
        takes_sizes: whether ``ptr z`` follows, the address of the words that hold its module's symbolic sizes.
    """

    symbol: str
    parameters: str = ""
    returns: str = "void"
    takes_sizes: bool = False

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The types of the parameters, with their attributes."""
        return tuple(part.rpartition(" ")[0] for part in self._parts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters as operands of the function."""
        return tuple("%" + part.rpartition(" ")[2] for part in self._parts)

    @cached_property
    def _parts(self) -> list[str]:
        return [*(self.parameters.split(", ") if self.parameters else []), *["ptr z"] * self.takes_sizes]

    @property
    def listed(self) -> str:
        """The parameters of a definition."""
        return ", ".join(map(" ".join, zip(self.kinds, self.names, strict=True)))

    @property
    def declaration(self) -> str:
        return f"declare {self.returns} @{self.symbol}({', '.join(self.kinds)})"


class ModuleText:
    """What the functions of one module share; the text is put together at the end.

    Intrinsics need no declaration: LLVM knows them by their names.
    """

    attributes: ClassVar[tuple[str, ...]] = ()
    """Groups of attributes that heads of functions name."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}  # by symbol
        self.definitions: dict[str, str] = {}  # what functions refer to, by symbol: tables, functions of other writers
        self.declarations: dict[str, str] = {}  # by symbol; of what is defined here, none is printed
        self.nodes: list[str] = []  # metadata
        self.sizes: dict[int, int] = {}  # symbolic size -> the word that holds its value

    def node(self, *parts: str) -> str:
        """The name of a node of metadata."""
        self.nodes.append(f"!{len(self.nodes)} = !{{{', '.join(parts)}}}")
        return f"!{len(self.nodes) - 1}"

    def table(self, symbol: str, words: Sequence[int]) -> None:
        """Define constant 64-bit words."""
        listed = ", ".join(f"i64 {word}" for word in words)
        self.definitions[symbol] = f"{symbol} = internal constant [{len(words)} x i64] [{listed}], align 16"

    def text(self) -> str:
        """The module, functions first."""
        declared = [text for symbol, text in self.declarations.items() if symbol not in self.functions]
        return "\n".join(
            [*self.functions.values(), *self.definitions.values(), *declared, *self.attributes, *self.nodes]
        )
