"""An LLVM module under construction: functions, what they refer to, metadata, words of sizes."""

from __future__ import annotations

from collections.abc import Sequence

WRITTEN_OUT = "; vectors, registers and order are written out"
"""First line of a module that LLVM's passes gain nothing in: they would only take half as long again to compile."""

WALKED = f"{WRITTEN_OUT}, in functions that the kernel walks to"
"""The same, of a kernel that has no inner loop without a call: what is left of it when its functions are taken out
(`runtime.shared_functions`) is compiled in a seventh of the time as it stands, and runs as long."""


class Signature:
    """A function as its callers see it. A plain class, because one is made for every function in every process.

    Args:
        symbol: its name.
        parameters: their types and names, ``"ptr context, i64 chunk"``.
        returns: its type.
        takes_sizes: whether ``ptr z`` follows, the address of the words that hold its module's symbolic sizes.
    """

    __slots__ = ("kinds", "names", "returns", "symbol", "takes_sizes")

    def __init__(self, symbol: str, parameters: str = "", returns: str = "void", takes_sizes: bool = False) -> None:
        self.symbol = symbol
        self.returns = returns
        self.takes_sizes = takes_sizes
        parts = [*(parameters.split(", ") if parameters else []), *["ptr z"] * takes_sizes]
        pairs = [part.rpartition(" ") for part in parts]
        self.kinds = tuple([kind for kind, _, _ in pairs])  # with their attributes
        self.names = tuple([f"%{name}" for _, _, name in pairs])  # as operands of the function

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

    attributes: tuple[str, ...] = ()
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
