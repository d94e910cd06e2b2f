"""One mutant in this process: plants it, then lets the killers look. Run by its path, before autojit is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

SEEN, UNSEEN = 3, 0  # exit codes; any other one is a crash
ALL_OPS_S = 3.0  # times the seconds of a killer: laws of all ops, for what is not an op's own


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads given text in place of a file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, whose text is given."""

    def __init__(self, name: str, path: str, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, self.path, self.text)
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


def main(family: str, module: str, path: str, text: str, baseline: str, seconds: float) -> int:
    """Plant the module's text and run the killers of its family."""
    sys.meta_path.insert(0, _Finder(module, path, Path(text).read_text(encoding="utf-8")))
    killers = importlib.import_module("autojit.testing.mutants.killers")
    verdicts = {int(seed): kind for seed, kind in json.loads(Path(baseline).read_text(encoding="utf-8")).items()}
    try:
        if family in ("derivatives", "lowerings"):
            killers.ops_of(module, ALL_OPS_S * seconds)
        if family == "transforms":
            killers.ops_of("", ALL_OPS_S * seconds)
        if family in ("lowerings", "transforms", "passes"):
            killers.graphs(seconds)
        killers.programs(verdicts, seconds)
    except killers.Killed as killed:
        print(killed)
        return SEEN
    return UNSEEN


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(given[0], given[1], given[2], given[3], given[4], float(given[5])))
