"""Write what type checkers and editors see of ``autojit``: its functions and the methods of Tensor, with signatures.

    python tools/make_stubs.py          # writes the stubs
    python tools/make_stubs.py --check  # says which of them are not current

Functions are attached to Tensor and to the package by name when it is imported, which no type checker can follow. The
stubs say it in words that they read, taken from the signatures of what the import has made; a test asks for them to be
current.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_overloads

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.layout import Layout
from autojit.functions.legacy import TensorKind
from autojit.functions.memory import MemoryFormat
from autojit.functions.method_forms import in_our_names
from autojit.tensor.tensor import Tensor

WITH_OUT = ("fft", "linalg", "special")  # modules whose functions take ``out`` from a decorator
PACKAGE = Path(aj.__file__).parent
HEAD = '"""{}: written by ``tools/make_stubs.py``, not by hand."""\n\n'
_NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}
_KINDS = inspect.Parameter
# ``object`` says that comparing gives a bool, of tensors it gives a tensor; ``x **= y`` takes no modulus
_UNLIKE = {"__eq__": "override", "__ne__": "override", "__ipow__": "misc"}
_AS_OBJECTS = ("__doc__", "__repr__", "__str__", "__format__", "__reduce_ex__")
Parameters = list[inspect.Parameter]


@cache
def origins(module: str) -> dict[str, tuple[str, str]]:
    """The names of a module that annotations may use: (module, name) that each comes from."""
    source = inspect.getsource(importlib.import_module(module))
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.asname: (a.name, "") for a in node.names if a.asname}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = (module, node.name)
        found |= {target.id: (module, target.id) for target in _targets(node)}
    return found


@cache
def _definitions(module: str) -> set[str]:
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _defined(module: str, name: str) -> tuple[str, str]:
    """The module that defines what another one imports, as far as these are ours."""
    while module.startswith("autojit") and origins(module).get(name, (module, name)) != (module, name):
        module, name = origins(module)[name]
    return module, name


class Names:
    """The names that a stub imports for its annotations, apart from those it offers."""

    def __init__(self, offered: Iterable[str]) -> None:
        self.offered = frozenset(offered)
        self.known: dict[str, tuple[str, str]] = {}

    def use(self, name: str, module: str, original: str) -> str:
        """What the stub calls the name ``original`` of a module."""
        if module == "builtins" and name not in self.offered:
            return name
        local = f"_{name}" if name in self.offered else name
        while self.known.get(local, (module, original)) != (module, original):
            local = f"_{local}"
        self.known[local] = (module, original)
        return local

    def annotation(self, text: object, module: str) -> str:
        """An annotation of a module in the names of the stub."""
        tree = ast.parse(text if isinstance(text, str) else getattr(text, "__name__", "Any"), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = self.use(node.id, *_defined(*origins(module).get(node.id, ("builtins", node.id))))
        return ast.unparse(tree)

    def text(self) -> str:
        """The import statements."""
        by_module: dict[str, list[str]] = {}
        lines = []
        for local, (module, name) in sorted(self.known.items()):
            if not name:
                lines.append(f"import {module} as {local}")
            else:
                by_module.setdefault(module, []).append(name if local == name else f"{name} as {local}")
        lines += [f"from {module} import {', '.join(names)}" for module, names in sorted(by_module.items())]
        return "".join(f"{line}\n" for line in lines)


def signatures(function: Callable[..., Any]) -> list[inspect.Signature]:
    """The forms in which a function may be called: its overloads, or the one that it says, and NumPy's names for those.

    What the wrappers around a function take beside it (``out``) is put to each.
    """
    inner = inspect.unwrap(function)
    home = vars(sys.modules[inner.__module__]).get(inner.__qualname__) if isinstance(inner, FunctionType) else None
    overloads = get_overloads(inner) if home is not None and inspect.unwrap(home) is inner else ()
    forms = [inspect.signature(f) for f in overloads] or [inspect.signature(inner)]
    wrapper: Any = function
    takes_numpy_names = False
    while wrapper is not inner:
        outer = inspect.signature(wrapper, follow_wrapped=False).parameters.values()
        forms = [_with(form, [p for p in outer if p.name == "out"]) for form in forms]
        if isinstance(wrapper, FunctionType):
            takes_numpy_names |= not {in_our_names.__name__, "_by_name"}.isdisjoint(wrapper.__code__.co_names)
        wrapper = wrapper.__wrapped__
    if takes_numpy_names:
        forms += [numpy for form in forms if (numpy := _in_numpy_names(form)) is not None]
    return forms


def _with(form: inspect.Signature, others: Parameters) -> inspect.Signature:
    own = list(form.parameters.values())
    kind = "Tensor | None" if form.return_annotation == "Tensor" else "Any"  # of ``out``
    added = [p.replace(annotation=kind) for p in others if p.name not in form.parameters]
    end = len(own) - (own[-1].kind is _KINDS.VAR_KEYWORD if own else 0)
    return form.replace(parameters=[*own[:end], *added, *own[end:]])


def _in_numpy_names(form: inspect.Signature) -> inspect.Signature | None:
    own = list(form.parameters.values())
    first = next((k for k, p in enumerate(own) if p.name in _NUMPY_NAMES), None)
    if first is None or any(p.kind is p.VAR_POSITIONAL for p in own):
        return None
    named = [p.replace(name=_NUMPY_NAMES.get(p.name, p.name), kind=_KINDS.KEYWORD_ONLY) for p in own[first:]]
    return form.replace(parameters=[*own[:first], *named])


def declared(name: str, function: Callable[..., Any], names: Names, first: str = "", keeps: bool = False) -> list[str]:
    """A function as a stub declares it; ``first`` (``self``) replaces its first parameter, or comes before it."""
    module = inspect.unwrap(function).__globals__["__name__"] if isinstance(function, FunctionType) else "builtins"
    lines = []
    forms = signatures(function)
    for form in forms:
        own = list(form.parameters.values())
        if first and not keeps and own and own[0].kind is not _KINDS.VAR_POSITIONAL:
            own = own[1:]
        taken = [*([first] if first else []), *_parameters(own, module, names)]
        given = form.return_annotation
        returned = "Any" if given is form.empty else given
        if len(forms) > 1:
            lines.append(f"@{names.use('overload', 'typing', 'overload')}")
        comment = f"  # type: ignore[{_UNLIKE[name]}]" if first and name in _UNLIKE else ""
        lines.append(f"def {name}({', '.join(taken)}) -> {names.annotation(returned, module)}: ...{comment}")
    return lines


def _static(lines: list[str]) -> list[str]:
    return [part for line in lines for part in (["@staticmethod", line] if line.startswith("def ") else [line])]


def _parameters(own: Parameters, module: str, names: Names) -> list[str]:
    found, is_keyword = [], False
    for k, p in enumerate(own):
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        if p.kind is p.KEYWORD_ONLY and not is_keyword:
            found.append("*")
        is_keyword = is_keyword or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        text = "Any" if p.annotation is p.empty else p.annotation
        default = "" if p.default is p.empty else f" = {_default(p.default)}"
        found.append(f"{star}{p.name}: {names.annotation(text, module)}{default}")
        if p.kind is p.POSITIONAL_ONLY and (k + 1 == len(own) or own[k + 1].kind is not p.POSITIONAL_ONLY):
            found.append("/")
    return found


def _default(value: object) -> str:
    is_plain = value is None or type(value) in (bool, int, str) or value == ()
    return repr(value) if is_plain or (type(value) is float and value - value == 0) else "..."


def _own_names(cls: type) -> set[str]:
    """What a class says in its own statements."""
    (tree,) = [n for n in ast.parse(inspect.getsource(sys.modules[cls.__module__])).body
               if isinstance(n, ast.ClassDef) and n.name == cls.__name__]  # fmt: skip
    said = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return said | {target.id for n in tree.body for target in _targets(n)}


def _targets(statement: ast.stmt) -> list[ast.Name]:
    """The names that a statement assigns."""
    if isinstance(statement, ast.Assign):
        return [t for t in statement.targets if isinstance(t, ast.Name)]
    return [statement.target] if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) else []


def method_stub() -> str:
    """``TensorMethods``: what ``functions/methods.py`` attaches to Tensor."""
    known = _own_names(Tensor) | {"__annotations__", "__dict__", "__module__", "__weakref__", *_AS_OBJECTS}
    attached = sorted(name for name in vars(Tensor) if name not in known)
    names = Names(attached)
    lines = []
    for name in attached:
        value = inspect.getattr_static(Tensor, name)
        if isinstance(value, property):
            lines += _property(name, value, names)
        elif isinstance(value, classmethod):
            made = [] if name == "__init_subclass__" else declared(name, value.__func__, names, "cls")
            lines += [line for form in made for line in ("@classmethod", form)]
        elif isinstance(value, staticmethod):
            lines += _static(declared(name, value.__func__, names))
        else:
            lines += declared(name, getattr(Tensor, name), names, "self")
    body = "".join(f"    {line}\n" for line in lines)
    title = HEAD.format("The methods of Tensor that are attached by name")
    return f"{title}{names.text()}\nclass TensorMethods:\n{body}"


def _property(name: str, value: property, names: Names) -> list[str]:
    (getter,) = declared(name, value.fget, names, "self") if value.fget is not None else ("",)
    if value.fset is None:
        return ["@property", getter]
    return [f"{name}: {getter.rpartition(' -> ')[2].removesuffix(': ...')}"]


def package_names() -> list[str]:
    """The public names of ``autojit``, those included that are imported when they are first used."""
    bound = {n.asname or n.name for s in _statements() if isinstance(s, ast.ImportFrom | ast.Import) for n in s.names}
    bound |= {target.id for s in _statements() for target in _targets(s)}
    bound |= {s.name for s in _statements() if isinstance(s, ast.FunctionDef)}
    return [*(n for n in dir(aj) if not n.startswith("__") and not (n.startswith("_") and n in bound)), "__version__"]


def module_stub(module: ModuleType, offered: list[str]) -> str:
    """What a module offers: by import where a function is at home, else by its signature."""
    names = Names(offered)
    shown: dict[str, list[str]] = {}
    lines: list[str] = []
    for name in offered:
        value = getattr(module, name)
        home, original = _home(name, value) if callable(value) or module is aj else origins(module.__name__)[name]
        if original and original != name and not original.startswith("_") and "." not in original:
            lines.append(f"{name} = {names.use(original, home, original)}")
        elif original:
            shown.setdefault(home, []).append(f"{original} as {name}")
        elif isinstance(value, ModuleType):
            lines += _callable_module(name, value, names)
        elif isinstance(value, TensorKind):
            lines.append(f"class {name}(Tensor): ...")
        elif isinstance(value, FunctionType):
            lines += declared(name, value, names)
        elif value is None:
            lines.append(f"{name}: None")
        else:
            lines.append(f"{name}: {names.use(type(value).__name__, type(value).__module__, type(value).__qualname__)}")
    imports = "".join(f"from {home} import {', '.join(shown[home])}\n" for home in sorted(shown))
    lines.append(f"__all__: {names.use('list', 'builtins', 'list')}[{names.use('str', 'builtins', 'str')}]")
    body = "".join(f"{line}\n" for line in lines)
    return f"{HEAD.format(f'What {module.__name__} offers')}{names.text()}{imports}\n{body}"


def _callable_module(name: str, module: ModuleType, names: Names) -> list[str]:
    """A module that is also the function of its name."""
    names.offered |= set(module.__all__)
    lines = [f"class _Package{name.title()}:"]
    for form in declared("__call__", getattr(module, name), names, "self", keeps=True):
        lines.append(f"    {form}")
    for part in sorted(set(module.__all__) - {name}):
        value = getattr(module, part)
        if isinstance(value, type):
            lines.append(f"    {part} = {names.use(part, value.__module__, value.__qualname__)}")
        else:
            lines += [f"    {line}" for line in _static(declared(part, value, names))]
    return [*lines, f"{name}: _Package{name.title()}"]


def _statements() -> list[ast.stmt]:
    return ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body


def _home(name: str, value: Any) -> tuple[str, str]:
    """The module that has a value under a name of its own, and that name; two empty texts where there is none."""
    if isinstance(value, ModuleType):
        if callable(value):
            return "", ""
        parent, _, original = value.__name__.rpartition(".")
        return parent, original
    if isinstance(value, TensorKind | DType | Layout | MemoryFormat):
        return "", ""
    module, original = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if module == "autojit" and inspect.unwrap(value).__name__ == value.__name__:  # as pickles know it
        module, original = inspect.unwrap(value).__module__, inspect.unwrap(value).__qualname__
    if isinstance(value, type):
        return module, original
    if not isinstance(value, FunctionType) or "." in original:
        return "", ""
    at_home = getattr(importlib.import_module(module), original, None)
    if not isinstance(at_home, FunctionType) or at_home.__globals__["__name__"] != module:
        return "", ""
    if original not in _definitions(module):  # made by a function, whose types say nothing of its parameters
        return "", ""
    return (module, original) if signatures(at_home) == signatures(value) else ("", "")


def main(arguments: list[str]) -> int:
    stubs = {PACKAGE / "__init__.pyi": module_stub(aj, package_names())}  # first: nothing is imported that was left
    stubs[PACKAGE / "tensor" / "tensor_methods.pyi"] = method_stub()
    for name in WITH_OUT:
        module = importlib.import_module(f"autojit.{name}")
        stubs[PACKAGE / name / "__init__.pyi"] = module_stub(
            module, sorted({*module.__all__, *(n for n in vars(module) if n.isupper())})
        )
    old = [path for path, text in stubs.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in old:
            print(f"{path} is not current: run tools/make_stubs.py")
        return int(bool(old))
    for path in old:
        path.write_text(stubs[path], encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
