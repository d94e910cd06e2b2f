"""What is said about a function by its name is said where the function is defined."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from autojit import functions
from autojit.functions import FUNCTIONS
from tests.house.sources import PACKAGE, nodes_of

FOLDERS = (
    "array_api",
    "fft",
    "functions",
    "interop",
    "linalg",
    "masked",
    "nn",
    "signal",
    "sparse",
    "special",
    "tensor",
)
WRITTEN = PACKAGE / "functions" / "index.py"  # from what the functions say
IN_FOLDERS = {path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")}
SOURCES = sorted({PACKAGE / "__init__.py", *IN_FOLDERS} - {WRITTEN})
FEWEST = 4  # names that make a table: three are as often options, or a comparison
NAMES = frozenset({*FUNCTIONS, *functions.PLACES, *functions.METHODS})
TABLES = {  # how many there are of other things that have such names
    "array_api/elementwise.py": 2,  # the names of the standard
    "functions/settings.py": 1,  # constants of the file
    "functions/segments.py": 1,  # values of ``reduce=``
    "interop/numpy_creation.py": 1,  # NumPy's functions that take ``like=``
    "interop/numpy_reductions.py": 1,  # ufuncs whose ``reduce`` is a function of NumPy's
    "interop/numpy_shapes.py": 1,  # NumPy's functions, which take other arguments
    "interop/ufunc_calls.py": 2,  # what methods of ufuncs are
    "nn/init.py": 1,  # layers and their gain
    "sparse/products.py": 1,  # values of ``reduce=``
    "sparse/rules.py": 1,  # ops
    "dispatch/fast_paths.py": 1,  # ops
    "functions/scatter.py": 1,  # values of ``reduce=``
    "functions/public_functions.py": 1,  # functions about the process
    "dispatch/inplace.py": 1,  # what NumPy computes into the memory itself
}


def tables_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and names of every collection, and of every text of words, that names several functions; not ``__all__``."""
    passed: set[ast.AST] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            passed.update(ast.walk(node))
        elif node not in passed:
            named = sorted(set(_words(node)) & NAMES)
            if len(named) >= FEWEST:
                passed.update(ast.walk(node))
                yield getattr(node, "lineno", 0), named


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
        for item in node.keys if isinstance(node, ast.Dict) else node.elts:
            if isinstance(item, ast.Constant | ast.Tuple | ast.List):
                yield from _words(item)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split()
        yield from words if all(word.isidentifier() for word in words) else ()


def test_no_table_names_functions_that_are_defined_elsewhere() -> None:
    for path in SOURCES:
        found = list(tables_of(path))
        allowed = TABLES.get(path.relative_to(PACKAGE).as_posix(), 0)
        assert len(found) == allowed, f"{path}: say it at the functions (autojit.dispatch.declared): {found}"


def test_no_parameter_gets_its_name_by_rewriting_code() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in nodes_of(path):
            assert not (isinstance(node, ast.keyword) and node.arg == "co_varnames"), path
