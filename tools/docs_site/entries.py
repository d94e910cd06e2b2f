"""What is known of one public name: its signatures, its docstring as Markdown, where its source is.

Signatures come from the stubs where there are some (``make stubs`` writes them from the live functions), so that a
reader sees what a type checker sees; else from the live object.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path
from typing import Any

from autojit.ir import Op
from tools.make_api_index import definition

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "autojit"
STUBS = {"aj": "__init__.pyi", "Tensor": "tensor/tensor_methods.pyi", "aj.linalg": "linalg/__init__.pyi",
         "aj.fft": "fft/__init__.pyi", "aj.special": "special/__init__.pyi"}  # fmt: skip
SECTIONS = ("Args", "Raises", "Returns", "Yields", "Example", "Examples", "Note", "Warns", "Attributes")
WIDE = 80  # columns of a signature before its parameters take a line each: what a page shows without scrolling
ATTRIBUTES = {  # what CPython's descriptors do not say
    "device": "Where the elements are: `device(type='cpu')` or a CUDA device.",
    "dtype": "The type of the elements, such as `aj.float32`.",
    "ndim": "The number of axes.",
    "output_nr": "Which result of its operation the tensor is.",
    "shape": "The extents of the axes, a `Size`, which is a tuple.",
}


@functools.cache
def _stub(file: str) -> dict[str, list[ast.FunctionDef]]:
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def signatures(prefix: str, name: str, value: Any) -> list[str]:
    """Every way to call a name, as Python source without ``def``; a property or a constant is its name alone."""
    written = prefix if prefix == "aj.jit" and name == "jit" else f"{prefix}.{name}"  # the package is the function
    if isinstance(value, property) or not callable(value):
        return [written]
    if prefix in STUBS and name in _stub(STUBS[prefix]) and not isinstance(value, type):
        return [_of_stub(written, node) for node in _stub(STUBS[prefix])[name]]
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return [written]
    if isinstance(value, type):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    return [laid_out(f"{written}{_plain(str(signature))}")]


def _of_stub(written: str, node: ast.FunctionDef) -> str:
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if any("property" in ast.unparse(d) for d in node.decorator_list):
        return _plain(f"{written}{result}")
    arguments = re.sub(r"(?<=[\w\])'])=(?=[\w\[('-])", " = ", ast.unparse(node.args))
    return laid_out(_plain(f"{written}({arguments}){result}"))


def _plain(text: str) -> str:
    """Annotations as a reader would write them."""
    text = re.sub(r"(?<=[:>|] )'([^']*)'", r"\1", text)
    text = re.sub(r"\b_(Tensor|bool|int|float|type|Dims|T)\b", r"\1", text)
    text = re.sub(
        r"<(?:function|class|object|method) ?[^>]*?([A-Za-z_]\w*)(?:'| at 0x[0-9a-f]+| object at 0x[0-9a-f]+)?>",
        r"\1",
        text,
    )
    text = re.sub(r"\bautojit\.(?=[a-z])", "aj.", text)
    return re.sub(r"\((?:self|cls)(?:: \w+)?(?:, )?", "(", text, count=1)


def laid_out(signature: str) -> str:
    """A long signature with a line for each parameter."""
    if len(signature) <= WIDE or "(" not in signature:
        return signature
    head, rest = signature.split("(", 1)
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(rest):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            parts.append(rest[start:at])
            break
        if letter == "," and depth == 0:
            parts.append(rest[start:at])
            start = at + 1
    inner = "".join(f"    {part.strip()},\n" for part in parts if part.strip())
    return f"{head}(\n{inner}{rest[at:]}"


def text_of(name: str, value: Any, base: str) -> str:
    """The docstring as Markdown, without its examples."""
    if base != name:
        return f"In-place form of `{base}`; returns the tensor itself."
    if name in ATTRIBUTES and isinstance(value, property):
        return ATTRIBUTES[name]
    if not (callable(value) or isinstance(value, property)):
        return f"`{value!r}`" if not re.search(r" at 0x", repr(value)) else type(value).__name__
    return markdown(inspect.getdoc(value) or "")


def example_of(value: Any) -> str:
    """The example of a docstring, prompts and results."""
    text = inspect.getdoc(value) or ""
    lines = text.splitlines()
    kept: list[str] = []
    inside = False
    for line in lines:
        if line.lstrip().startswith(">>> "):
            inside = True
        elif inside and not line.strip():
            inside = False
        if inside:
            kept.append(line)
    return inspect.cleandoc("\n".join(kept))


def markdown(doc: str) -> str:
    """A Google-style docstring as Markdown: sections are bold, parameters are lists; examples are left out."""
    out: list[str] = []
    section = ""
    in_prompt = False
    doc = re.sub(r"``[^`]+?``", _on_one_line, doc)
    for line in doc.splitlines():
        bare = line.strip()
        head = re.fullmatch(r"(\w+):", bare)
        if bare.startswith(">>>"):
            in_prompt = True
        elif not bare:
            in_prompt = False
        if in_prompt:
            continue
        if head and head[1] in SECTIONS and not line.startswith(" "):
            section = head[1]
            out += [] if section.startswith("Example") else ["", f"**{section}**", ""]
            continue
        if bare and not line.startswith(" "):
            section = ""
        if section in ("Args", "Raises", "Attributes", "Warns") and (found := re.match(r"    (\S[^:]*): (.*)", line)):
            out.append(f"- `{found[1].strip('`*')}`: {escaped(found[2])}")
        elif section and bare:
            out.append(
                f"    {escaped(bare)}" if section in ("Args", "Raises", "Attributes", "Warns") else escaped(bare)
            )
        else:
            out.append(escaped(bare))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def _on_one_line(code: re.Match[str]) -> str:
    """Code that a docstring breaks, which would be two halves: lines are escaped one by one."""
    return re.sub(r"\s*\n\s*", " ", code[0])


def escaped(line: str) -> str:
    """A line of a docstring, in which only code is set off, as Markdown that shows the same letters."""
    parts = re.split(r"(``.+?``|`[^`]+`)", line)
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = f"`{part.strip('`')}`"
        else:
            parts[at] = re.sub(r"([\\*_<\[\]|#])", r"\\\1", part)
    return "".join(parts)


def source_of(name: str, value: Any) -> tuple[Path, int] | None:
    """File and line that define a function or class of ours; of a function that is one op, those of the op."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    found = definition(value)
    if found and found[0].name == "op_functions.py":
        found = definition(Op.registry.load().get(name)) or found
    return found if found and found[0].is_relative_to(PACKAGE) else None
