"""Records, on the unchanged product, which check runs which statement. Run by its path, before autojit is imported."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ops", "transforms", "passes", "jit")
GRAPHS, PROGRAMS = 150, 150
JUDGED = ("agrees", "refused", "eager error")  # verdicts on programs that a mutant must not change


class _Planted(importlib.machinery.SourceFileLoader):
    """Finds one module, and runs a changed tree in place of its file's, over given globals."""

    def __init__(self, name: str, path: Path, tree: ast.Module, given: dict[str, object]) -> None:
        super().__init__(name, str(path))
        self.tree, self.given = tree, given

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = importlib.util.spec_from_file_location(fullname, self.path, loader=self)
        return found if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self.given)
        super().exec_module(module)


def main(out: str, parts: Sequence[str]) -> None:
    """Plant probes, run every check, write the record."""
    reach = importlib.import_module("reach")
    sys.path[0] = str(ROOT.parents[1])  # for the tests, where this is a checkout
    seen: list[tuple[str, list[int], bytearray]] = []
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).glob("*.py")):
        where = str(path.relative_to(ROOT))
        tree, lines = reach.probed(path.read_text(encoding="utf-8"))
        flags = bytearray(len(lines))
        seen.append((where, lines, flags))
        name = "autojit." + where.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        sys.meta_path.insert(0, _Planted(name, path, tree, {reach.SEEN: flags}))
    np = importlib.import_module("numpy")
    rows, checks = [], []

    def start() -> None:
        for _, _, flags in seen:
            flags[:] = bytes(len(flags))

    def note(kind: str, name: str, verdict: str, elapsed_s: float) -> None:
        rows.append(np.concatenate([np.frombuffer(bytes(flags), bool) for _, _, flags in seen]))
        checks.append(reach.Check(kind, name, verdict, elapsed_s))

    _run_all(parts, start, note)
    pairs = [(where, line) for where, lines, _ in seen for line in lines]
    places = {pair: k for k, pair in enumerate(dict.fromkeys(pairs))}
    bits = np.zeros((len(rows), len(places)), bool)
    for k, pair in enumerate(pairs):  # two statements of one line share a column
        bits[:, places[pair]] |= np.array([row[k] for row in rows])
    reach.Reach(checks, places, bits).write(Path(out))


def _run_all(parts: Sequence[str], start: Callable[[], None], note: Callable[[str, str, str, float], None]) -> None:
    killers = importlib.import_module("autojit.testing.mutants.killers")
    judge = importlib.import_module("autojit.testing.fuzz.campaign").judge_seed

    def attempt(kind: str, name: str, check: Callable[[str], str]) -> None:
        start()
        began = time.process_time()
        try:
            verdict = check(name)
        except killers.Killed:  # it fails on the unchanged product: it cannot judge a mutant
            return
        if kind != "program" or verdict in JUDGED:
            note(kind, name, verdict, time.process_time() - began)

    if "laws" in parts:
        for name in killers.names_of_ops():
            attempt("op", name, lambda name: killers.check_op(name) or "")
    if "graphs" in parts and killers.IS_CHECKOUT:
        for seed in range(GRAPHS):
            attempt("graph", str(seed), lambda name: killers.check_graph(int(name)) or "")
    folders = [part for part in parts if "/" in part]
    if folders and killers.IS_CHECKOUT:
        suite = importlib.import_module("autojit.testing.mutants.suite")
        suite.watch_tests(folders, start, lambda name, s: note("test", name, "", s) if s <= suite.LONGEST_S else None)
    if "programs" in parts:
        for seed in range(PROGRAMS):
            attempt("program", str(seed), lambda name: judge(int(name)).kind)
            attempt("told", str(seed), lambda name: killers.told_of(int(name)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
