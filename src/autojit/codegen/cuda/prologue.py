"""The kernel that begins a run whose launches read what moves from call to call: it writes its parameters to a table.

The driver copies a launch's parameters when the launch, or the node of a graph, is given to it. So the host may change
its own block for the next call at once, and no launch in flight has to be waited for.
"""

from __future__ import annotations

from autojit.codegen.function_text import FunctionText
from autojit.codegen.module_text import ModuleText, Signature
from autojit.core.once import once

MOST_PROLOGUE_WORDS = 480
"""A launch takes 4096 bytes of parameters: these and the table's address. So many are 15 times 256 bytes."""

_GLOBAL = "addrspace(1)"


class _PrologueFunction(FunctionText):
    """A kernel is told by its calling convention."""

    def head(self) -> str:
        return f"ptx_kernel {super().head()}"


def prologue_words(words: int) -> int:
    """The size of the prologue that takes so many words: steps share those of few sizes."""
    size = 4
    while size < words:
        size *= 2
    return min(size, MOST_PROLOGUE_WORDS)


@once
def prologue_text(words: int) -> str:
    """A module whose ``@kernel`` writes so many words, its second parameter, to a table, its first.

    One thread does: the words are a few, and stores do not wait for each other.
    """
    module = ModuleText()
    takes = f"ptr {_GLOBAL} noalias align 256 table, ptr byval([{words} x i64]) align 8 words"
    f = _PrologueFunction(module, Signature("kernel", takes), attributes='nounwind "nvvm.maxntid"="1"')
    table, given = f.parameters
    loaded = [f.load("i64", f.element(given, "i64", k), attributes=", align 8") for k in range(words)]
    for k, word in enumerate(loaded):
        f.store("i64", word, f.element(f"{_GLOBAL} {table}", "i64", k), attributes=", align 8")
    f.finish()
    return module.text()
