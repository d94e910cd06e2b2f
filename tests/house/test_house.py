"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, SOURCES, nodes_of, tree_of

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted({PACKAGE / path.relative_to(PACKAGE).parts[0] for path in SOURCES if path.parent != PACKAGE})
HEAVY = ("llvmlite", "numba", "scipy", "sklearn", "matplotlib", "hypothesis", "torch")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_stay_under_500_lines_and_few_are_near_it() -> None:
    lines = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: count for path, count in lines.items() if count >= 500} == {}
    assert len([path for path, count in lines.items() if count > 450]) <= 10


def test_functions_have_at_most_60_lines() -> None:
    """From the line of ``def`` on, with signature and docstring."""
    long = [
        f"{name(path)}::{node.name}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= 60
    ]
    assert long == []


@pytest.mark.parametrize("readme", sorted(PACKAGE.rglob("README.md")), ids=name)
def test_a_readme_names_files_that_are_there(readme: Path) -> None:
    """By their path from the README's folder, from the package, from ``src`` or from the root."""
    folder = readme.parent
    below = {path.name for path in folder.rglob("*.py")}
    missing = [
        file
        for file in files_named_in(readme)
        if file not in below and not any((root / file).exists() for root in (folder, PACKAGE, PACKAGE.parent, ROOT))
    ]
    assert missing == []


def test_design_notes_name_files_that_are_there() -> None:
    """By the end of their path, in whatever folder they are."""
    folders = (ROOT / part for part in ("src", "tests", "tools", "benchmarks", "examples"))
    there = [f"/{name(path)}" for folder in folders for path in folder.rglob("*.py")]
    pages = [*(ROOT / "docs" / "design").glob("*.md"), ROOT / "docs" / "how_it_works.md", ROOT / "CONTRIBUTING.md"]
    missing = {
        (page.name, file)
        for page in pages
        for file in files_named_in(page)
        if not any(path.endswith(f"/{file}") for path in there)
    }
    assert missing == set()


def files_named_in(page: Path) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_a_folder_opens_with_a_readme(folder: Path) -> None:
    assert (folder / "README.md").is_file()


def test_importing_autojit_loads_nothing_heavy() -> None:
    code = f"import autojit, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert done.stdout.strip() == "[]"


def test_the_two_statements_of_the_runtime_requirements_agree() -> None:
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE))
    listed = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"([\w-]+)[><=]', listed.group(1))) == pinned


def test_no_module_of_ops_that_is_imported_later_bears_the_name_of_an_op_function() -> None:
    """Importing it would hide the function until the function is first asked for, which then finds the module."""
    folder = PACKAGE / "ops"
    trees = {path.stem: tree_of(path).body for path in folder.glob("*.py")}
    at_once = {str(node.module).rpartition(".")[2] for node in trees["__init__"] if isinstance(node, ast.ImportFrom)}
    offered = {
        constant.value
        for body in trees.values()
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant)
    }
    assert len(offered) > 100
    assert (set(trees) - at_once) & offered == set()


@pytest.mark.parametrize("folder", ["ir", "ops", "passes", "transforms"])
def test_the_reference_knows_no_kernel(folder: str) -> None:
    """What an op means is NumPy: the way to a compiled kernel (``Op.fast``, a port) is eager dispatch's alone."""
    for path in sorted((PACKAGE / folder).glob("*.py")):
        if path.name == "op.py":
            continue  # declares the attribute
        nodes = nodes_of(path)
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        assert not used & {"fast", "fast_paths"}, name(path)
        ports = {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ports"
        }
        assert ports <= {"transforms"}, name(path)


def _cached_functions(path: Path) -> list[tuple[str, str]]:
    """Functions that ``functools`` keeps results of, with what they say they return."""
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef):
            kept = {ast.unparse(d).partition("(")[0].removeprefix("functools.") for d in node.decorator_list}
            if kept & {"cache", "lru_cache"}:
                found.append((f"{path.stem}.{node.name}", ast.unparse(node.returns) if node.returns else ""))
    return found


def test_what_the_runtime_keeps_and_hands_out_addresses_of_is_made_once() -> None:
    """``functools.cache`` frees what the slower of two racing threads made; only plain values may be kept by it."""
    plain = {"int", "bool", "str", "float"}
    found = [pair for path in (PACKAGE / "runtime").glob("*.py") for pair in _cached_functions(path)]
    assert [name for name, returned in found if returned not in plain] == []


def test_locks_come_from_where_a_fork_finds_them() -> None:
    """A lock that another thread held when a process forked stays locked in the child for ever."""
    made = re.compile(r"= threading\.(R?Lock|Condition|Semaphore)\(|\[threading\.R?Lock\(")
    assert {name(path) for path in SOURCES if made.search(path.read_text(encoding="utf-8"))} == {
        "src/autojit/core/locks.py",
        "src/autojit/core/undivided_work.py",  # a fork waits for it
    }


def test_every_warning_is_about_the_users_line() -> None:
    """Only ``core.user_warnings`` calls ``warnings.warn``: it looks for that line."""
    callers = [name(path) for path in SOURCES if "warnings.warn(" in path.read_text(encoding="utf-8")]
    assert callers == ["src/autojit/core/user_warnings.py"]


READS_HINTS = {  # why it may
    "core/sizes.py",  # the arithmetic carries them on
    "ir/concrete.py",  # the same for shapes and ops
    "schedule/counts.py",  # the same
    "jit/draws.py",  # what is fetched for one call has the sizes of that call
    "jit/numpy_arrays.py",  # what NumPy makes of one call's arrays has the sizes of that call
    "jit/trace_sizes.py",  # makes them for sizes that a step counts
    "ops/sources.py",  # the eager rule of the op that is a size
    "dispatch/shown_memory.py",  # stand-ins for strides, which all sizes from 2 on answer alike
    "tensor/memory_orders.py",  # the same; others are asked for
    "dispatch/operand_memory.py",  # the same, of views of what an op of open sizes reads
}


def _is_reading_hints(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("hint_of", "hinted")
    return isinstance(node, ast.Attribute) and node.attr == "hint"


def test_few_files_read_the_value_that_an_open_size_had_at_the_capture() -> None:
    found = {path for path in SOURCES if any(map(_is_reading_hints, nodes_of(path)))}
    assert {path.relative_to(PACKAGE).as_posix() for path in found} == READS_HINTS


BOUNDS = {  # numbers that bound what a pass or the schedule looks at, wherever a graph runs
    "schedule/again.py": {"MOST_OPS", "MOST_VALUES"},  # ops repeated for one value, values decided on together
    "schedule/bands.py": {"LOOK_AHEAD", "LONG_ROWS", "LEAST_KERNELS", "TRIAL_GRAINS"},
    "schedule/batches.py": {"MOST_KERNELS"},
    "schedule/forms.py": {"MOST_FORMS"},
    "schedule/recompute.py": {"CUTS", "SMALL", "ROUNDS", "TRIES", "CLOSENESS"},
    "schedule/fusion.py": {"MOST_MEMBERS", "RECENT_READERS", "CANDIDATES"},
    "schedule/loops.py": {"LONGEST_CHAIN"},
    "schedule/padded.py": {"A_STORE", "MOST_BUFFERS", "MOST_READS"},
    "schedule/parted.py": {"FEW"},
    "passes/complex_functions.py": {"_LONGEST_CHAIN"},  # NumPy's
    "passes/constants.py": {"MOVABLE"},  # by which factor a partial product may differ from the one written
    "passes/fourier.py": {"TURNS"},  # sines and cosines of a table
    "passes/index_bounds.py": {"DEEPEST"},
    "passes/join_products.py": {"FEWEST", "LENIENCE"},  # counts of products; what open lengths may cost
    "passes/join_rows.py": {"FEWEST", "MOST_ROWS", "LEAST_COLUMNS"},  # counts of products and their sizes
    "passes/join_sums.py": {"FEWEST", "COLUMNS"},  # counts of column sums; their axis
    "passes/read_parts.py": {"UNREAD"},  # the part of a product that must be unread
    "passes/share_steps.py": {"EXPANSION"},  # elements stored for one read
    "passes/simplify.py": {"MAX_FOLDED_OPERANDS"},
    "passes/sparse_updates.py": {"SHARE"},  # passes over rows for one over the table
}


@pytest.mark.parametrize("folder", ["passes", "schedule"])
def test_no_pass_and_no_schedule_knows_a_machine(folder: str) -> None:
    """What depends on where a graph runs is in `core.machine.Machine`; other numbers are named here."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        numbers = {
            ast.unparse(node.targets[0])
            for node in tree_of(path).body
            if isinstance(node, ast.Assign) and _is_number(node.value)
        }
        assert numbers == BOUNDS.get(f"{folder}/{path.name}", set()), path


def _is_number(tree: ast.expr) -> bool:
    """Whether an expression is made of numbers alone."""
    leaves = [node for node in ast.walk(tree) if not isinstance(node, ast.operator | ast.unaryop | ast.expr_context)]
    kinds = ast.BinOp | ast.UnaryOp | ast.Tuple
    numbers = [node for node in leaves if isinstance(node, ast.Constant) and type(node.value) in (int, float)]
    return bool(numbers) and all(isinstance(node, kinds) or node in numbers for node in leaves)


def test_one_module_chooses_what_compiles_a_graph() -> None:
    """Above the runtime, ``backend.py`` alone names a back end's code and its machine."""
    above = [p for p in SOURCES if p.relative_to(PACKAGE).parts[0] not in ("codegen", "runtime", "backend.py")]
    allowed = {"jit/stages.py"}  # assembly for this processor
    for path in above:
        text = path.read_text(encoding="utf-8")
        if str(path.relative_to(PACKAGE)) not in allowed:
            assert "autojit.codegen.cpu" not in text, path
            assert "cached_host_target" not in text, path
