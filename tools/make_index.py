"""Write ``src/autojit/functions/index.py``: which module has which name that is imported when it is first used.

Names come from what is ``declared`` or ``top_level`` in the modules that ``import autojit`` does not import. With
``--check`` nothing is written: the status says whether the index is what it should be.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import autojit
from autojit.core.top_level import TOP_LEVEL
from autojit.dispatch.declared import DECLARED

INDEX = Path(autojit.__file__).parent / "functions" / "index.py"
_HEAD = '''"""Which module has which name that is imported when first used. Written by ``make index``: do not edit."""

from __future__ import annotations

'''
_APART = (
    "testing",
    "compat",
    "cuda",
    "multiprocessing",
    "distributed",
    "__main__",
)  # declare nothing, or start something


def main() -> int:
    """Write the index, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; the status is 1 where the index is old")
    wanted = _text()
    if not parser.parse_args().check:
        INDEX.write_text(wanted, encoding="utf-8")
        return 0
    return int(INDEX.read_text(encoding="utf-8") != wanted)


def _text() -> str:
    at_once = set(DECLARED)
    for module in walk_packages(autojit.__path__, "autojit."):
        if not set(module.name.split(".")) & set(_APART):
            import_module(module.name)
    functions = dict(TOP_LEVEL)
    methods: dict[str, str] = {}
    for d in (d for name, d in DECLARED.items() if name not in at_once):
        module_name = d.function.__module__
        names = [*d.names, *(f"{name}_" for name in d.names if d.in_place)]
        functions |= dict.fromkeys(names if d.is_function else (), module_name)
        methods |= dict.fromkeys(names if d.method else (), module_name)
    return f"{_HEAD}{_table('FUNCTIONS', functions)}{_table('METHODS', methods)}"


def _table(title: str, places: dict[str, str]) -> str:
    lines = [f"{title} = {{"]
    for module in sorted(set(places.values())):
        names = " ".join(sorted(name for name, place in places.items() if place == module))
        key = f'    "{module.removeprefix("autojit.")}": '
        short = f'{key}"{names}",'
        wrapped = textwrap.wrap(names, 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
        lines += [short] if len(short) <= 120 else [f'{key}"""', *wrapped[:-1], f'{wrapped[-1]}""",']
    return "\n".join([*lines, "}  # fmt: skip", ""])


if __name__ == "__main__":
    sys.exit(main())
