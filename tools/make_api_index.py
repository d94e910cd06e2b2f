"""Write a page that lists every public name with its first sentence and a link to its source.

    python tools/make_api_index.py [FILE]      # default: out/api.md

The page is made anew by every build and never kept, for line numbers change with every edit. Links are relative to it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    "autojit", "autojit.autograd", "autojit.autograd.forward_ad", "autojit.autograd.function",
    "autojit.autograd.functional", "autojit.autograd.grad_mode", "autojit.autograd.graph",
    "autojit.autograd.profiler", "autojit.compat.v0_3",
    "autojit.compat.v1_0", "autojit.io", "autojit.linalg", "autojit.nn", "autojit.nn.functional", "autojit.nn.init",
    "autojit.nn.utils", "autojit.optim", "autojit.optim.lr_scheduler", "autojit.special", "autojit.sparse",
    "autojit.testing", "autojit.utils.data",
)  # fmt: skip


class Entry(NamedTuple):
    """A public name, the file and line that define it, and what it is."""

    name: str
    file: Path
    line: int
    summary: str


def entries(module: ModuleType) -> list[Entry]:
    """Every public name of a module, in alphabetical order."""
    names = set(getattr(module, "__all__", ())) or {
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    if module.__name__ == "autojit":
        names |= {n for n, v in vars(module).items() if _is_own_callable(v) and not n.startswith("_")}
    return [entry(name, getattr(module, name), module) for name in sorted(names)]


def _is_own_callable(value: Any) -> bool:
    return callable(value) and str(getattr(value, "__module__", "")).startswith("autojit")


def methods(cls: type) -> list[Entry]:
    """The public attributes of a class."""
    found = []
    for name in sorted(n for n in dir(cls) if not n.startswith("_")):
        value = inspect.getattr_static(cls, name)
        found.append(entry(name, value, importlib.import_module(cls.__module__)))
    return found


def entry(name: str, value: Any, module: ModuleType) -> Entry:
    """Where one name is defined: the function or class itself, or the line that binds it."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    file, line = definition(value) or _binding(name, value, module)
    return Entry(name, file, line, _summary(value))


def definition(value: Any) -> tuple[Path, int] | None:
    """The file and line of a function, class or module of this project; ``None`` for all other values."""
    if isinstance(value, ModuleType):
        return (Path(value.__file__), 1) if value.__file__ else None
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return None
    try:
        value = inspect.unwrap(value)
        file = Path(inspect.getsourcefile(value) or "")
        if inspect.isclass(value):
            line = _lines_of_classes(str(file))[value.__qualname__]
        else:
            line = inspect.findsource(value)[1] + 1
    except (TypeError, OSError, KeyError):
        return None
    return (file, line) if file.is_relative_to(ROOT) else None


def _binding(name: str, value: Any, module: ModuleType) -> tuple[Path, int]:
    """The line in the module, or in the one the value's class comes from, that says ``name =`` or imports it."""
    patterns = (rf"^{re.escape(name)}\b[^=]*=[^=]", rf"\b{re.escape(name)}\b")
    for pattern in patterns:
        for place in (module, sys.modules.get(type(value).__module__), *_packages(module)):
            file = getattr(place, "__file__", None)
            if file is None or not file.startswith(str(ROOT)) or name not in _text(file):
                continue
            found = re.search(pattern, _text(file), re.MULTILINE)
            if found is not None:
                return Path(file), found.string.count("\n", 0, found.start()) + 1
    raise LookupError(f"{module.__name__}.{name}: no line defines it")


@functools.cache
def _lines_of_classes(file: str) -> dict[str, int]:
    """By qualified name; `inspect` parses the whole file for every class that is asked for."""
    found: dict[str, int] = {}

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = within
            if isinstance(child, ast.ClassDef):
                found[within + child.name] = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                inner = f"{within}{child.name}."
            elif isinstance(child, ast.FunctionDef):
                inner = f"{within}{child.name}.<locals>."
            visit(child, inner)

    visit(ast.parse(_text(file)), "")
    return found


@functools.cache
def _text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _packages(module: ModuleType) -> Iterator[ModuleType]:
    """The modules below a package that are loaded: a name may be bound in one of them and passed on."""
    for name, found in sorted(sys.modules.items()):
        if name.startswith(f"{module.__name__.partition('.')[0]}."):
            yield found


def _summary(value: Any) -> str:
    """The first sentence of what the docstring says, on one line."""
    if not (callable(value) or isinstance(value, ModuleType)):
        return f"`{value!r}`" if len(repr(value)) < 40 else ""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return text.replace("|", "\\|")


def page(target: Path) -> str:
    """The whole page, with links as seen from ``target``."""
    sections = [(f"`{name}`", entries(importlib.import_module(name))) for name in MODULES]
    tensor = importlib.import_module("autojit").Tensor
    sections.insert(1, ("`autojit.Tensor`", methods(tensor)))
    lines = ["# Public names", "", "Made by `tools/make_api_index.py`; every name links to its source.", ""]
    for title, found in sections:
        lines += [f"## {title}", "", "| name | what it is |", "|---|---|"]
        for e in found:
            link = Path(os.path.relpath(e.file, target.parent)).as_posix()
            lines.append(f"| [{e.name}]({link}#L{e.line}) | {e.summary} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "out" / "api.md").resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    text = page(target)
    target.write_text(text, encoding="utf-8")
    print(f"{target}: {text.count('](')} names")


if __name__ == "__main__":
    main()
