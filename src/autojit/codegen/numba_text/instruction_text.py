"""One line of LLVM text taken apart: types, operands, calls.

A line is ``%result = opcode modifiers type operand, operand`` in many variations; the functions here know brackets,
attributes and fast-math flags, so that others deal with types and values alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from autojit.core.errors import UnsupportedError

_NAME = re.compile(r'[%@](?:"[^"]*"|[-\w$.]+)')
_ATTRIBUTE = re.compile(
    r"\s*(?:(?:noundef|nonnull|noalias|readonly|writeonly|readnone|nocapture|signext|zeroext|inreg|returned|nofree|"
    r"immarg|align \d+)\b|(?:captures|range|dereferenceable|dereferenceable_or_null|initializes|nofpclass|align)"
    r"\((?:[^()]|\([^()]*\))*\))"
)
FLAGS = frozenset(
    {
        "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "nuw", "nsw", "exact", "disjoint", "nneg",
        "samesign", "inbounds", "nusw",
    }
)  # fmt: skip
_OPENING, _CLOSING = "([{<", ")]}>"
_CALLING = re.compile(r"(?:(?:tail|musttail|notail)\s+)?call\b")
_WORDS_BEFORE_TYPE = frozenset(["fastcc", "ccc", "coldcc"])


class Instruction(NamedTuple):
    """``result`` is a name or empty; ``opcode`` one word; ``rest`` what follows it."""

    result: str
    opcode: str
    rest: str

    def text(self) -> str:
        body = f"{self.opcode} {self.rest}".rstrip()
        return f"{self.result} = {body}" if self.result else body


class Call(NamedTuple):
    """A direct call: its flags, result type, the function's name without ``@``, and (type, value) operands."""

    flags: str
    type: str
    callee: str
    operands: list[tuple[str, str]]

    def text(self) -> str:
        operands = ", ".join(f"{kind} {value}" for kind, value in self.operands)
        return f"call {self.flags}{self.type} @{self.callee}({operands})"


def read_instruction(line: str) -> Instruction:
    """A line of a block."""
    line = line.strip()
    found = re.match(r'(%(?:"[^"]*"|[-\w$.]+)) = ', line)
    result = found.group(1) if found else ""
    body = line[found.end() :] if found else line
    calling = _CALLING.match(body)
    if calling:
        return Instruction(result, "call", body[calling.end() :].strip())
    opcode, _, rest = body.partition(" ")
    return Instruction(result, opcode, rest)


def split(text: str, separator: str = ",") -> list[str]:
    """The parts between separators that are outside brackets and quotes."""
    parts, depth, start, is_quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if character == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def take_type(text: str) -> tuple[str, str]:
    """A type at the start of a text, and what follows it."""
    text = text.lstrip()
    if text[:1] not in _OPENING:
        word = re.match(r"[\w.]+", text)
        if word is None:
            raise UnsupportedError("LLVM text: a type was expected", {"text": text})
        return word.group(), text[word.end() :].lstrip()
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0:
            return text[: position + 1], text[position + 1 :].lstrip()
    raise UnsupportedError("LLVM text: a bracket is not closed", {"text": text})


def typed(text: str) -> tuple[str, str]:
    """``double noundef %x`` as its type and its value."""
    kind, rest = take_type(text)
    while True:
        attribute = _ATTRIBUTE.match(rest)
        if attribute is None:
            return kind, rest.strip()
        rest = rest[attribute.end() :]


def take_flags(text: str) -> tuple[str, str]:
    """Leading flags (``"nuw nsw "``, or empty) and the rest."""
    flags = ""
    while True:
        word, _, rest = text.lstrip().partition(" ")
        if word not in FLAGS:
            return flags, text.lstrip()
        flags += f"{word} "
        text = rest


def read_call(rest: str) -> Call:
    """What follows ``call``. UnsupportedError for calls through pointers and of assembly."""
    flags, rest = take_flags(rest)
    words = rest
    while True:
        attribute = _ATTRIBUTE.match(words)
        word = words.split(" ", 1)[0]
        if attribute is not None:
            words = words[attribute.end() :].lstrip()
        elif word in _WORDS_BEFORE_TYPE:
            words = words[len(word) :].lstrip()
        else:
            break
    kind, words = take_type(words)
    if words.startswith("("):  # the whole function type, for functions of a variable number of operands
        _, words = take_type(words)
    name = _NAME.match(words)
    if name is None or not words.startswith("@"):
        raise UnsupportedError("a linked function calls through a pointer", {"call": rest})
    callee = name.group()[1:]
    operands, _ = take_type(words[name.end() :])
    return Call(flags, kind, callee, [typed(part) for part in split(operands[1:-1])])


def binary(rest: str) -> tuple[str, str, str, str]:
    """``flags type a, b`` as (flags, type, a, b)."""
    flags, rest = take_flags(rest)
    kind, rest = take_type(rest)
    a, b = split(rest)
    return flags, kind, a, b


def scalar_of(kind: str) -> str:
    """The element type of a vector type; other types are their own."""
    found = re.fullmatch(r"<\d+ x (\w+)>", kind)
    return found.group(1) if found else kind


def is_floating(kind: str) -> bool:
    """Whether a type is float or double, or a vector of them."""
    return scalar_of(kind) in ("float", "double")


def has_floats(kind: str) -> bool:
    """Whether a type has a part that is float or double."""
    return re.search(r"\b(?:float|double)\b", kind) is not None
