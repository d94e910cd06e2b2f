"""Attempts without the price of an import: a process that has imported the product and its tests forks one child for
each mutant, in which the mutated function is given its changed code.

``python server.py FOLDER...`` collects the tests of these folders, then reads one ``Attempt`` a line, and writes why it
was killed ("" if it was not) a line each.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

from autojit.testing.mutants import killers
from autojit.testing.mutants.suite import LEFT_OUT, PLAIN
from autojit.testing.mutants.targets import FAMILIES, ROOT

SLOWER, START_S = 2.0, 15.0  # of processor time, times and beside what the checks took: whoever needs more hangs
WAITING = 10.0  # seconds of the clock for one of these: a mutant that waits for ever is ended

TABLES = (dict, list, tuple, set, frozenset, int, str)  # what modules compute once and look things up in


class Attempt(NamedTuple):
    """A mutant and who looks for it."""

    path: str  # of the module's file
    function: str
    text: str  # of the module
    checks: list[tuple[str, str, str, float]]

    @property
    def limit_s(self) -> float:
        """Of processor time."""
        return max(2.0, START_S + SLOWER * sum(elapsed_s for *_, elapsed_s in self.checks))

    def harmless(self) -> Attempt:
        """Without the mutant, except for that planted in the same way."""
        return self._replace(text=ast.unparse(ast.parse(Path(self.path).read_text(encoding="utf-8"))))


class Server:
    """A pytest plugin: in place of running the tests, it answers attempts."""

    def __init__(self, given: int, told: int) -> None:
        self.given, self.told = given, told
        self.functions: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        self.failed = ""
        self.place = -1  # of the check that runs, in a child
        self.trusted: set[tuple[str, ...]] = set()  # checks that failed with a mutant and passed without

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until the input ends."""
        items = {item.nodeid: item for item in session.items}
        for path in (path for family in FAMILIES for path in sorted((ROOT / family.folder).glob("*.py"))):
            importlib.import_module(f"autojit.{path.parent.name}.{path.stem}")
        gc.unfreeze()  # what is frozen is not listed
        for found in gc.get_objects():
            if type(found) is FunctionType:
                self.functions[found.__code__.co_filename, found.__code__.co_qualname].append(found)
        gc.collect()
        gc.freeze()
        with os.fdopen(self.given) as lines, os.fdopen(self.told, "w") as answers:
            for line in lines:
                print(self._attempt(session, items, Attempt(*json.loads(line))), file=answers, flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def _attempt(self, session: pytest.Session, items: dict[str, pytest.Item], attempt: Attempt) -> str:
        """Why the mutant was killed. A check that fails without the mutant as well, after those before it, is none."""
        checks = list(attempt.checks)
        while True:
            planted = attempt._replace(checks=checks)
            place, why = self._child(session, items, planted, is_planted=True)
            if not why or place < 0 or tuple(checks[place][:2]) in self.trusted:
                return why
            control = attempt._replace(checks=checks[: place + 1])
            false, reason = self._child(session, items, control, is_planted=False)
            if not reason:
                self.trusted.add(tuple(checks[place][:2]))
                return why
            del checks[max(false, 0)]

    def _child(
        self, session: pytest.Session, items: dict[str, pytest.Item], attempt: Attempt, is_planted: bool
    ) -> tuple[int, str]:
        """(the place of the check that failed or -1, why), from a child of this process."""
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            limit = int(attempt.limit_s)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            why = self._seen(session, items, attempt, is_planted)
            os.write(theirs, f"{self.place}:{why}".encode())
            os._exit(0)
        os.close(theirs)
        said = _read(ours, WAITING * attempt.limit_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        place, found, why = said.partition(":")
        if found:
            return int(place), why.replace("\n", " ")
        return -1, "hang" if said == "?" or os.WTERMSIG(status) == signal.SIGXCPU else f"crash with {status}"

    def _seen(self, session: pytest.Session, items: dict[str, pytest.Item], attempt: Attempt, is_planted: bool) -> str:
        try:
            _plant(self.functions, attempt if is_planted else attempt.harmless())
            for place, (kind, name, verdict, _) in enumerate(attempt.checks):
                self.place = place
                if kind != "test":
                    killers.check(kind, name, verdict)
                elif name in items:
                    following = next((items[n] for k, n, *_ in attempt.checks[place + 1 :] if n in items), None)
                    session.config.hook.pytest_runtest_protocol(item=items[name], nextitem=following)
                    if self.failed:
                        return f"test {self.failed}"
        except killers.Killed as killed:
            return str(killed)[:200]
        except BaseException as error:  # the mutant may raise anything, and none of it may reach the parent's loop
            return f"{type(error).__name__} {error}"[:200]
        return ""


def _plant(functions: Mapping[tuple[str, str], Sequence[FunctionType]], attempt: Attempt) -> None:
    """Give the function its changed code, and also the functions that it made while modules were imported."""
    codes = list(_codes(compile(attempt.text, attempt.path, "exec", dont_inherit=True)))
    names = Counter(code.co_qualname for code in codes)
    inner = f"{attempt.function}.<locals>."
    planted = False
    for code in codes:
        name = code.co_qualname
        if name == attempt.function or (name.startswith(inner) and names[name] == 1):
            for function in functions.get((attempt.path, name), ()):
                function.__code__ = code  # with other free variables a ValueError: nobody would ship it
                planted = True
    if not planted:
        raise LookupError(f"no function {attempt.function}")
    _make_tables_again(attempt)


def _make_tables_again(attempt: Attempt) -> None:
    """What the module has computed by the function while it was imported (tables) is computed by its changed code."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("autojit")]
    names = next(vars(m) for m in modules if getattr(m, "__file__", None) == attempt.path)
    callers = {attempt.function}
    codes = {name: f.__code__ for name, f in names.items() if type(f) is FunctionType}
    while more := {name for name, code in codes.items() if not callers.isdisjoint(code.co_names)} - callers:
        callers |= more
    for statement in ast.parse(attempt.text).body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
            continue
        calls = [node.func for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
        old = names[target.id]
        if type(old) in TABLES and any(isinstance(f, ast.Name) and f.id in callers for f in calls):
            new = eval(compile(ast.Expression(statement.value), attempt.path, "eval"), names)
            for holder in map(vars, modules):
                holder.update({name: new for name, value in holder.items() if value is old})


def _codes(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes(part)


def _read(end: int, timeout_s: float) -> str:
    """What a child says until it ends; "?" when it does not end."""
    until = time.monotonic() + timeout_s
    said = b""
    while True:
        if not select.select([end], [], [], max(0.0, until - time.monotonic()))[0]:
            os.close(end)
            return "?"
        part = os.read(end, 4096)
        if not part or said:
            os.close(end)
            return (said + part).decode()
        said += part


def main(folders: Sequence[str]) -> None:
    """Collect and serve; the tests' own output goes nowhere."""
    given, told = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for end in (0, 1, 2):
        os.dup2(nowhere, end)
    os.chdir(killers.CHECKOUT)
    sys.path.insert(0, str(killers.CHECKOUT))
    left_out = [f"--ignore-glob=*/{name}" for name in LEFT_OUT]
    pytest.main([*PLAIN, "-s", *left_out, *folders], [Server(given, told)])


if __name__ == "__main__":
    main(sys.argv[1:])
