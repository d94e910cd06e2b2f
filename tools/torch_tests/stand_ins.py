"""torch's test helpers over autojit: modules below ``torch.testing`` are run from torch's own sources.

The helpers (``torch.testing._internal.common_utils`` and its kin) reach for much that is torch's inside: C++ bindings,
the compiler, other devices. Their text is therefore changed while it is read: ``torch.a.b`` and its imports
become look-ups that give an `Absent` for what is not there. An `Absent` is false, empty, callable and a decorator that
changes nothing, so a module that only mentions it can be imported. Test files are changed outside of their functions
only: what a test itself asks for must be there.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = "torch"
SERVED = "torch.testing"
"""Modules below this are taken from torch's sources where the answering library has none."""

NOT_SERVED = frozenset({"torch.testing._internal.common_quantized"})
"""Helpers of parts that only torch itself has."""

LOOK_UP, MODULE, MEMBER, STARRED = "__look_up__", "__module__", "__member__", "__starred__"


class Absent:
    """What is not there: harmless where it is only mentioned."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Absent)
        return args[0] if decorates else Absent(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, instance: object) -> bool:
        return False

    __subclasscheck__ = __instancecheck__

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, item: object) -> bool:
        return False

    def __getitem__(self, key: Any) -> Any:
        return Absent(f"{self._name}[{key!r}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing keeps it."""

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __lt__(self, other: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        """Nothing was entered."""

    def __repr__(self) -> str:
        return f"<absent {self._name}>"


class AbsentDtype(Absent):
    """A dtype that is not there: passes for one, so that lists of dtypes can hold it."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return look_up(f"{ROOT}.dtype")

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return self._name  # names of tests end in it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


DTYPES = tuple(
    f"{ROOT}.{start}" for start in ("float8", "complex32", "chalf", "quint", "qint", "bits", "int4", "uint4")
)


class ExceptionWrapper:
    """``torch._utils.ExceptionWrapper``: what test files send an exception of another process with."""

    def __init__(self, told: tuple[Any, ...]) -> None:
        self.exc_type = told[0]
        self.exc_msg = "".join(traceback.format_exception(*told))


class HigherOrderOperator(Absent):
    """``torch._ops.HigherOrderOperator``: a base of operators that a test file defines for one test."""


KNOWN: dict[str, Any] = {
    "torch._C.has_spectral": True,
    "torch._C.has_lapack": True,
    "torch._utils.ExceptionWrapper": ExceptionWrapper,
    "torch._ops.HigherOrderOperator": HigherOrderOperator,
    "torch._C._get_privateuse1_backend_name": lambda: "privateuse1",
    "torch._C._get_accelerator": lambda: SimpleNamespace(type="cpu"),
    "torch.utils._import_utils._check_module_exists": lambda name: importlib.util.find_spec(name) is not None,
    "torch._utils_internal.get_writable_path": lambda path: path,
    "torch._dynamo.trace_rules._as_posix_path": lambda path: Path(path).as_posix(),
}
"""What helpers need a value of, by torch's name."""

_OF_KINDS = {
    "_global_forward_hooks": ("_forward_hooks",),
    "_global_forward_pre_hooks": ("_forward_pre_hooks",),
    "_global_backward_hooks": ("_backward_hooks", "_last_node_hooks"),
}


class ModuleOfModules(ModuleType):
    """``torch.nn.modules.module``, where tests assign new tables of the hooks of all modules to be rid of the old."""

    def __getattr__(self, name: str) -> Any:
        if name == "_global_forward_hooks_always_called":
            return [hook for kind, hook in _hooks_of_all_modules().values() if kind == "_forward_hooks" and hook[2]]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _OF_KINDS:
            super().__setattr__(name, value)
            return
        hooks = _hooks_of_all_modules()
        for number in [number for number, (kind, _) in hooks.items() if kind in _OF_KINDS[name]]:
            del hooks[number]


def _hooks_of_all_modules() -> Any:
    return importlib.import_module("autojit.nn.hooks").everywhere


def absent(name: str) -> Any:
    """What is given for a name that is not there."""
    if name.startswith(DTYPES):
        return AbsentDtype(name)
    return KNOWN.get(name) or Absent(name)


def member(module: str, name: str) -> Any:
    """``from module import name``; an `Absent` where there is none."""
    found = module_or_absent(module)
    if isinstance(found, Absent):
        return absent(f"{module}.{name}")
    try:
        return getattr(found, name)
    except AttributeError:
        return module_or_absent(f"{module}.{name}")


def module(name: str) -> Any:
    """``import name``; an `Absent` where there is none."""
    found = module_or_absent(name)
    parent, _, child = name.rpartition(".")
    return member(parent, child) if isinstance(found, Absent) and parent else found


def look_up(path: str) -> Any:
    """``torch.a.b``, where modules need not have been imported; an `Absent` where there is none."""
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            if not isinstance(found, ModuleType):
                return absent(path)
            found = module_or_absent(".".join(parts[:index]))
        if isinstance(found, Absent):
            return absent(path)
    return found


def module_or_absent(name: str) -> Any:
    """A module, else an `Absent`; an error inside of a module that is there is an error."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return absent(name)


def starred(names: dict[str, Any], package: str) -> None:
    """``from package import *``."""
    found = module_or_absent(package)
    if isinstance(found, ModuleType):
        public = getattr(found, "__all__", [name for name in vars(found) if not name.startswith("_")])
        names.update({name: getattr(found, name) for name in public})


def attribute_of(thing: Any, path: str, *default: Any) -> Any:
    """What a test case of ops asks for by the name of its op."""
    if isinstance(thing, ModuleType) and thing.__name__ in (ROOT, "autojit"):
        return look_up(f"{ROOT}.{path}")
    for part in path.split("."):
        thing = getattr(thing, part, *default)
    return thing


OVERRIDES = {"torch.testing._internal.opinfo.core": {"_getattr_qual": attribute_of}}
"""Functions of the helpers that would look for torch's inside themselves, by module."""

GIVEN: dict[str, Callable[..., Any]] = {LOOK_UP: look_up, MODULE: module, MEMBER: member, STARRED: starred}


class Lookups(ast.NodeTransformer):
    """Makes look-ups of the names of torch's modules.

    Args:
        functions: inside of functions, too; without, of those only that are called as the module is imported.
    """

    def __init__(self, *, functions: bool) -> None:
        self._functions = functions
        self._called: set[str] = set()
        self._aliases: dict[str, str] = {ROOT: ROOT}

    def visit_Module(self, node: ast.Module) -> Any:
        at_import = [statement.value for statement in node.body if isinstance(statement, ast.Assign)]
        at_import += [decorator for part in ast.walk(node) for decorator in getattr(part, "decorator_list", ())]
        called = [part.func if isinstance(part, ast.Call) else part for part in at_import]
        self._called = {function.id for function in called if isinstance(function, ast.Name)}
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if self._functions or node.name in self._called:
            return self.generic_visit(node)
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args = self.visit(node.args)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self.generic_visit(node) if self._functions else node

    def visit_Import(self, node: ast.Import) -> Any:
        ours = [name for name in node.names if _is_below(name.name)]
        others = [name for name in node.names if not _is_below(name.name)]
        made: list[ast.stmt] = [ast.Import(others)] if others else []
        for name in ours:
            if name.asname:
                self._aliases[name.asname] = name.name
                made.append(_assign(name.asname, MODULE, name.name))
            else:
                top = name.name.partition(".")[0]
                made += [ast.Expr(_call(MODULE, name.name)), _assign(top, MODULE, top)]
        return [ast.copy_location(statement, node) for statement in made]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        package = node.module or ""
        if node.level or not _is_below(package):
            return node
        made: list[ast.stmt] = []
        for name in node.names:
            if name.name == "*":
                names = ast.Call(ast.Name("globals", ast.Load()), [], [])
                made.append(ast.Expr(ast.Call(ast.Name(STARRED, ast.Load()), [names, ast.Constant(package)], [])))
                continue
            if not package.startswith(f"{SERVED}._") and isinstance(member(package, name.name), ModuleType):
                self._aliases[name.asname or name.name] = f"{package}.{name.name}"
            made.append(_assign(name.asname or name.name, MEMBER, package, name.name))
        return [ast.copy_location(statement, node) for statement in made]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        path = _dotted(node)
        first, _, rest = path.partition(".")
        if first not in self._aliases or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return ast.copy_location(_call(LOOK_UP, f"{self._aliases[first]}.{rest}"), node)


def _is_below(name: str) -> bool:
    return name.partition(".")[0] in (ROOT, "torchgen", "functorch")


def _call(function: str, *arguments: str) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), [ast.Constant(argument) for argument in arguments], [])


def _assign(target: str, function: str, *arguments: str) -> ast.Assign:
    return ast.Assign([ast.Name(target, ast.Store())], _call(function, *arguments))


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` of an expression that is only that, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = _dotted(node.value)
        return f"{start}.{node.attr}" if start else ""
    return ""


def changed_code(path: Path, *, functions: bool) -> Any:
    """A file's code with its look-ups."""
    tree = Lookups(functions=functions).visit(ast.parse(path.read_text(), str(path)))
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


class FromSources(Loader):
    """Runs a file of torch's sources with its look-ups."""

    def __init__(self, path: Path, *, functions: bool = True) -> None:
        self._path, self._all = path, functions

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(GIVEN, __file__=str(self._path))
        exec(changed_code(self._path, functions=self._all), module.__dict__)
        module.__dict__.update(OVERRIDES.get(module.__name__, {}))


class HelperFinder(MetaPathFinder):
    """Finds torch's helpers for tests in its sources, and the test files, and helpers beside them, in their folder."""

    def __init__(self, sources: Path, tests: Path) -> None:
        self._sources, self._tests = sources, tests

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module comes from; None where it is not one of these."""
        if fullname in NOT_SERVED:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        if fullname.startswith(f"{SERVED}._"):
            return self._spec(fullname, self._sources.joinpath(*fullname.split(".")), functions=True)
        if "." in fullname:
            return None
        return self._spec(fullname, self._tests / fullname, functions=not fullname.startswith("test_"))

    def _spec(self, name: str, path: Path, *, functions: bool) -> ModuleSpec | None:
        package, file = path / "__init__.py", path.with_suffix(".py")
        if package.is_file():
            found = ModuleSpec(name, FromSources(package, functions=functions), origin=str(package), is_package=True)
            found.submodule_search_locations = [str(path)]
            return found
        if file.is_file():
            return ModuleSpec(name, FromSources(file, functions=functions), origin=str(file))
        return None


def serve(sources: Path, tests: Path) -> None:
    """From now on, in this process, helpers and tests come from torch's sources."""
    sys.meta_path.insert(0, HelperFinder(sources, tests))
    top: Any = importlib.import_module(ROOT)
    dynamo: Any = importlib.import_module(f"{ROOT}._dynamo")
    if hasattr(dynamo, "config"):
        return
    dynamo.config, dynamo.reset = SimpleNamespace(suppress_errors=False), lambda: None
    top._utils = SimpleNamespace(_element_size=lambda dtype: dtype.itemsize)
    importlib.import_module(f"{ROOT}.nn.modules.module").__class__ = ModuleOfModules
