"""Records of 64-bit words in IR text: a word is loaded by the names of its record and of itself.

Plans, contexts and descriptors are tables that Python fills and native code reads. In the text, ``%x = word plan.error
of %plan`` loads an integer and ``%x = pointer plan.error of %plan`` an address, wherever the word stands in the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_LOAD = re.compile(r"^  %([\w.]+) = (word|pointer) (\w+)\.(\w+) of (%[\w.]+)$", re.MULTILINE)
_TYPES = {"word": "i64", "pointer": "ptr"}


def with_words(text: str, records: Mapping[str, Sequence[str]]) -> str:
    """The text with its loads of words written out; ``records`` are the names of their words, in order."""

    def load(use: re.Match[str]) -> str:
        name, kind, record, word, base = use.groups()
        return word_load(name, base, records[record].index(word), _TYPES[kind])

    return _LOAD.sub(load, text)


def word_load(name: str, base: str, position: int, kind: str = "i64") -> str:
    """Load the word at one position of the record at ``base``."""
    if not position:
        return f"  %{name} = load {kind}, ptr {base}, align 8"
    address = f"  %{name}.word = getelementptr i64, ptr {base}, i64 {position}"
    return f"{address}\n  %{name} = load {kind}, ptr %{name}.word, align 8"
