"""``python -m autojit run train.py``: a program written for torch, as it is, on autojit.

The program runs as ``__main__`` in a process whose ``import torch`` is answered by autojit (`torch_names`). With
``--step function``, or ``--step module:function``, that function is compiled: it is decorated with ``aj.jit`` where it
is defined, before its module runs, so whoever takes it from there has the compiled one.
"""

from __future__ import annotations

import argparse
import ast
import sys
import traceback
from collections.abc import Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from autojit.compat.absent import LIBRARIES, reason_of
from autojit.compat.torch_names import torch_names
from autojit.compat.wanted_names import missing_names
from autojit.core.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DECORATOR = "__import__('autojit').jit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``run``."""
    parser.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="[MODULE:]FUNCTION",
        help="compile this function, of the program if no module is said: train_step, model:Net.forward; several times "
        "for several",
    )
    parser.add_argument("--jit", action="store_true", help="compile what --step names, as --step alone does")
    parser.add_argument("script", type=Path, help="the program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the program; what is missing of torch is listed first.

    Raises:
        ArgumentError: there is no such program, or no such function to compile.
    """
    path: Path = options.script
    if not path.is_file():
        raise ArgumentError("run: there is no such program", {"script": str(path)}, "name a Python file")
    if options.jit and not options.step:
        raise ArgumentError(
            "run: --jit compiles the functions that --step names",
            {"jit": options.jit, "step": options.step},
            "write --step train_step",
        )
    steps = Steps(options.step, path.stem)
    _list_missing(path)
    with torch_names(), _as_main(path, options.args), steps.decorating():
        try:
            steps.run(path)
        except Exception as error:
            _show(error, str(path))
            return 1
    steps.require_all()
    return 0


def _list_missing(path: Path) -> None:
    """Say which names of torch's are not here, before a long run comes to them."""
    missing = missing_names(path)
    if missing:
        lines = [f"  {wanted}" for wanted in missing]
        sys.stderr.write(
            "\n".join([f"{path.name} asks for {len(missing)} name(s) that autojit does not have:", *lines, ""])
        )


def _show(error: Exception, path: str) -> None:
    """The traceback that ``python script`` would print; why a module of torch's is not here, where that is said."""
    name = str(error.name) if isinstance(error, ImportError) else ""
    reason = LIBRARIES.get(name.partition(".")[0]) or reason_of(name.partition("torch.")[2])
    if reason:
        error.add_note(reason)
    inside = error.__traceback__
    while inside is not None and inside.tb_frame.f_code.co_filename != path:
        inside = inside.tb_next
    traceback.print_exception(error.with_traceback(inside or error.__traceback__))


@contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Arguments and search path are those that ``python script`` has."""
    before = sys.argv, sys.path[0], sys.modules.get("__main__")
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.resolve().parent)
    try:
        yield
    finally:
        sys.argv, sys.path[0] = before[:2]
        if before[2] is not None:
            sys.modules["__main__"] = before[2]


class Steps:
    """Functions that are compiled, by module.

    Args:
        named: each as ``module:function``, ``module:Class.method`` for methods; without a module, of the program.
        main: the program's own name.

    Raises:
        ArgumentError: one is named otherwise.
    """

    def __init__(self, named: Sequence[str], main: str) -> None:
        self.left: dict[str, set[str]] = {}
        self.main = main
        for text in named:
            module, _, function = text.rpartition(":")
            if not function or text.startswith(":") or ":" in module:
                raise ArgumentError(
                    "run: --step names a function of a module", {"step": text}, "write --step train:train_step"
                )
            self.left.setdefault(module or main, set()).add(function)

    @contextmanager
    def decorating(self) -> Iterator[None]:
        """Inside, the functions are compiled where their modules are imported."""
        if not self.left:
            yield
            return
        finder = _StepFinder(self)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)

    def run(self, path: Path) -> None:
        """Run the program."""
        module = ModuleType("__main__")
        module.__file__ = str(path)
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = module
        exec(self.compiled(path.read_bytes(), str(path), self.main), module.__dict__)

    def compiled(self, source: Any, path: str, module: str) -> CodeType:
        """A module's code, its steps decorated."""
        tree = ast.parse(source, path)
        wanted = self.left.get(module)
        if wanted:
            wanted -= decorate(tree, wanted)
        return compile(tree, path, "exec", dont_inherit=True)

    def require_all(self) -> None:
        """Say which functions were not met.

        Raises:
            ArgumentError: some were not.
        """
        left = [f"{module}:{name}" for module, names in self.left.items() for name in sorted(names)]
        if left:
            raise ArgumentError(
                "run: the program has defined no such function", {"step": ", ".join(left)}, "name it as module:function"
            )


def decorate(tree: ast.Module, names: set[str]) -> set[str]:
    """Put the decorator on functions of a module, ``Class.method`` for methods; those that were found."""
    found: set[str] = set()

    def walk(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and prefix + node.name in names:
                mark = ast.parse(_DECORATOR, mode="eval").body
                for part in ast.walk(mark):
                    ast.copy_location(part, node)
                node.decorator_list.append(mark)
                found.add(prefix + node.name)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                walk(node.body, prefix)

    walk(tree.body, "")
    return found


class _StepFinder(MetaPathFinder):
    """Finds the modules that have functions to be compiled as the import system does, and loads them decorated."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._steps.left.get(fullname) or fullname == self._steps.main:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Decorating(fullname, spec.loader.path, self._steps)
        return spec


class _Decorating(SourceFileLoader):
    """Loads a module whose steps are decorated; its code is not kept in a file."""

    def __init__(self, fullname: str, path: str, steps: Steps) -> None:
        super().__init__(fullname, path)
        self._steps = steps

    def get_code(self, fullname: str) -> CodeType:
        return self._steps.compiled(self.get_data(self.path), self.path, fullname)
