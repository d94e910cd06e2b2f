"""The examples of the reference: found or derived for a name, and run; what they print is what a reader sees.

A file ``examples/PREFIX.txt`` has lines ``name: code`` or ``name:`` and indented lines. Lines ``name = other`` say that
the example of another name serves with the name replaced; ``name!:`` is an example that raises; ``*`` is the example of
every name that has no other, with ``{name}`` in it. What is printed is not kept, so it cannot be out of date.

An example is looked for in the docstring, in the file, in the function of the same name (for methods and for packages
that have it too), and for an in-place form in the function it is the form of.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import doctest
import functools
import importlib
import inspect
import io
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.emulated import emulated_cuda
from tools.docs_site.entries import example_of

FOLDER = Path(__file__).parent / "examples"
FILES = {"aj.jit": "jit"}  # where the prefix is no good name of a file
SHARED = {"F": "aj", "aj": "F", "aj.special": "aj", "aj.linalg": "aj", "aj.masked": "aj"}  # same names, same functions
PRELUDE = """import autojit as aj
import numpy as np
from autojit import nn
from autojit.nn import functional as F
from autojit.optim import lr_scheduler
"""


ON_DEVICE = ("aj.cuda", "aj.accelerator")  # whose examples find an emulated device


class Example(NamedTuple):
    """Statements that show a name, whether the last one is meant to raise, and whether they need a device."""

    code: str
    raises: bool = False
    on_device: bool = False


@functools.cache
def book(prefix: str) -> dict[str, Example | str]:
    """Name -> example, or the name whose example serves."""
    file = FOLDER / f"{FILES.get(prefix, prefix)}.txt"
    found: dict[str, Example | str] = {}
    if not file.exists():
        return found
    name, raises, lines = "", False, list[str]()

    def end() -> None:
        if lines:
            found[name] = Example("\n".join(lines).rstrip(), raises)
        lines.clear()

    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            lines.append(line[4:])
            continue
        end()
        if not line or line.startswith("#"):
            continue
        head, colon, code = line.partition(":")
        if " = " in head or not colon:
            for alias in head.partition(" = ")[0].split():
                found[alias] = head.partition(" = ")[2].strip()
            continue
        name, raises = head.rstrip("!"), head.endswith("!")
        if code.strip():
            lines.append(code.strip())
    end()
    return found


def example(prefix: str, name: str, value: Any, base: str) -> Example | None:
    """The example of a name; ``None`` where there is none."""
    found = _found(prefix, name, value, base)
    return found._replace(on_device=True) if found and prefix in ON_DEVICE else found


def _found(prefix: str, name: str, value: Any, base: str) -> Example | None:
    own = book(prefix).get(name) or (book("aj").get(name) if prefix == "Tensor" and base != name else None)
    if isinstance(own, str):
        found = example(prefix, own, None, own)
        return found and renamed(found, own, name)
    if own is not None:
        return own
    if prefix != "Tensor" and example_of(value) and base == name:
        return of_docstring(value)
    if base != name:
        found = example(prefix, base, _sibling(value, base), base)
        return found and in_place(found, base, name)
    if prefix == "Tensor":
        found = example("aj", name, _top_level(name), name)
        return found and as_method(found, name)
    if prefix in SHARED and SHARED[prefix] in ("aj", "F"):
        found = _shared(SHARED[prefix], name, value)
        if found is not None:
            return Example(found.code.replace(f"{SHARED[prefix]}.{name}(", f"{prefix}.{name}("), found.raises)
    template = book(prefix).get("*")
    return Example(template.code.replace("{name}", name)) if isinstance(template, Example) else None


def _shared(prefix: str, name: str, value: Any) -> Example | None:
    """The example of the same function in another package; not that of one that only has its name."""
    from autojit.nn import functional

    other = _top_level(name) if prefix == "aj" else getattr(functional, name, None)
    if other is None or (value is not None and inspect.getdoc(other) != inspect.getdoc(value)):
        return None
    own = book(prefix).get(name)
    if isinstance(own, str):
        return example(prefix, name, None, name)
    return own or (of_docstring(other) if example_of(other) else None)


def _top_level(name: str) -> Any:
    import autojit

    return getattr(autojit, name, None)


def _sibling(value: Any, base: str) -> Any:
    """The function beside an in-place form, for its docstring."""
    import autojit
    from autojit.nn import functional

    return getattr(autojit, base, None) or getattr(functional, base, None)


def of_docstring(value: Any) -> Example:
    """The statements of a docstring's example; what it finds in its own module is imported."""
    parts = doctest.DocTestParser().get_examples(example_of(value))
    known = set(PRELUDE.splitlines())
    code = "".join(part.source for part in parts if part.source.strip() not in known).rstrip()
    module = inspect.getmodule(inspect.unwrap(value)) if callable(value) else None
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    missing = sorted(
        name for name in used - {"aj", "nn", "F", "np"} if name in vars(module or ast) and _is_public(name)
    )
    if missing and module is not None and not _defines(code, missing[0]):
        names = ", ".join(missing)
        code = f"from {_public_path(module, missing[0])} import {names}\n{code}"
    return Example(code, any(part.exc_msg for part in parts))


def _is_public(name: str) -> bool:
    return not name.startswith("_") and name not in vars(builtins)


def _defines(code: str, name: str) -> bool:
    stored = (ast.Store, ast.Del)
    tree = list(ast.walk(ast.parse(code)))
    named = any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, stored) for node in tree)
    imported = any(isinstance(node, ast.alias) and (node.asname or node.name) == name for node in tree)
    return named or imported or any(isinstance(node, ast.arg) and node.arg == name for node in tree)


def _public_path(module: ModuleType, name: str) -> str:
    """The shortest package in which the name is what it is in the module."""
    parts = module.__name__.split(".")
    for end in range(2, len(parts)):
        path = ".".join(parts[:end])
        if getattr(importlib.import_module(path), name, None) is vars(module)[name]:
            return path
    return module.__name__


def renamed(example: Example, old: str, new: str) -> Example:
    """With another function of the same signature."""

    class Renames(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            self.generic_visit(node)
            node.attr = new if node.attr == old else node.attr
            return node

    return _changed(example, Renames())


def as_method(example: Example, name: str) -> Example | None:
    """``aj.f(x, y)`` as ``x.f(y)``; ``None`` where no call has a tensor first and no method is called."""
    change = _Methods(name, name)
    found = _changed(example, change)
    return found if change.done or f").{name}(" in example.code else None


def in_place(example: Example, base: str, name: str) -> Example | None:
    """``aj.f(x, y)`` as ``x.f_(y)``, and ``F.f(x)`` as ``F.f_(x)`` where ``nn.functional`` has the form."""
    if f"F.{base}(" in example.code:
        return Example(example.code.replace(f"F.{base}(", f"F.{name}("), example.raises)
    import autojit

    change = _Methods(base, name)
    found = _changed(example, change) if hasattr(autojit.Tensor, name) else example
    return found if change.done else renamed(example, base, name)


class _Methods(ast.NodeTransformer):
    def __init__(self, function: str, method: str) -> None:
        self.function, self.method, self.done = function, method, False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if not (
            isinstance(called, ast.Attribute) and called.attr == self.function and isinstance(called.value, ast.Name)
        ):
            return node
        if called.value.id != "aj" or not node.args or isinstance(node.args[0], ast.Starred | ast.List | ast.Constant):
            return node
        self.done = True
        return ast.Call(ast.Attribute(node.args[0], self.method, ast.Load()), node.args[1:], node.keywords)


def _changed(example: Example, change: ast.NodeTransformer) -> Example:
    tree = ast.parse(example.code)
    before = [ast.dump(node) for node in tree.body]
    texts = [ast.get_source_segment(example.code, node) or "" for node in tree.body]
    after = [change.visit(node) for node in tree.body]
    lines = [t if b == ast.dump(a) else ast.unparse(a) for t, b, a in zip(texts, before, after, strict=True)]
    return Example("\n".join(lines), example.raises)


def session(example: Example) -> str:
    """Run an example in a folder of its own; its statements with prompts and what they print.

    Raises:
        Exception: what the example raises, except where that is meant.
    """
    device = emulated_cuda() if example.on_device else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), device:
        return _session(example)


def _session(example: Example) -> str:
    import autojit as aj

    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(PRELUDE, namespace)
    aj.manual_seed(0)
    shown: list[str] = []
    with warnings.catch_warnings(), aj.enable_grad():
        warnings.simplefilter("error")
        for node in ast.parse(example.code).body:
            text = ast.get_source_segment(example.code, node) or ""
            if getattr(node, "decorator_list", None):
                text = "\n".join(example.code.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno])  # type: ignore[attr-defined]
            shown += [f"{'... ' if at else '>>> '}{line}".rstrip() for at, line in enumerate(text.splitlines())]
            shown += _results(node, example.raises, namespace).splitlines()
    return "\n".join(shown)


def _results(node: ast.stmt, raises: bool, namespace: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            if isinstance(node, ast.Expr):
                value = eval(compile(ast.Expression(node.value), "<example>", "eval"), namespace)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([node], []), "<example>", "exec"), namespace)
        except Exception as error:
            if not raises:
                raise
            print(f"Traceback (most recent call last):\n{type(error).__name__}: {str(error).splitlines()[0]}")
    return printed.getvalue()
