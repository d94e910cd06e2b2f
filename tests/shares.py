"""Laws of many cases of which a run takes a share: ``shares.txt`` says which, and what all their cases cost.

A gate that takes an hour is not waited for. So where the cases of one test take long together, a run takes one of so
many: the same ones in every run, every value of every parameter among them as far as they go, the rest in an order that
their ids decide. ``--every-case`` runs all, and so does naming a test by its id; ``--slow`` runs the campaigns, too.

The page is written from measured costs, by one rule for all tests; a case that was run stands for those that were not::

    make test ARGS="--costs=build/costs"
    python -m tests.shares build/costs
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import pytest

PAGE = Path(__file__).with_name("shares.txt")
HEAD = """\
# Tests of which a run takes one case of K (tests/shares.py): K, processor seconds of all cases, the test.
# Written by `python -m tests.shares`.
"""
SECONDS = 0.4
"""What the cases of a test that are run may take together, on the machine that the page was written on."""

CASES = 2
"""So many are run at least."""

DEAR = 0.75
"""Processor seconds of a case, on average, above which one is enough, unless the cases are eager and compiled mode."""

MODES = ("eager", "jit")
"""How ids of cases begin that are a law in each mode."""

MOST = 24
"""K at most."""

WHOLE = ("tests/docs/", "tests/examples/test_examples.py::test_an_example_is_captured_once", "tests/ops/test_laws.py::")
"""What users copy, and what every op promises."""


def read_shares() -> dict[str, int]:
    """K of every test that the page names."""
    lines = [line.split() for line in PAGE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {test: int(every) for every, _, test in lines}


def share_of(cases: list[tuple[str, dict[str, int]]], every: int) -> set[str]:
    """Ids of one case of ``every``: values of parameters that are not among them yet come first."""
    in_order = sorted(cases, key=lambda case: crc32(case[0].encode()))
    wanted, met = ceil(len(cases) / every), set[Any]()
    chosen: dict[str, None] = {}
    for new in (True, False):
        for name, values in in_order:
            if len(chosen) < wanted and not (new and met.issuperset(values.items())):
                chosen[name] = None
                met.update(values.items())
    return set(chosen)


def add_options(parser: pytest.Parser) -> None:
    """The options of this file."""
    parser.addoption("--every-case", action="store_true", help="run also the cases that tests/shares.txt leaves out")
    parser.addoption("--costs", metavar="DIR", help="write the processor time of every test into files of this folder")


def begin(config: pytest.Config) -> None:
    """Let costs be written, if somebody asks for them."""
    if config.getoption("--costs"):
        stand_for = {} if every_case(config) else read_shares()
        config.pluginmanager.register(Costs(Path(config.getoption("--costs")), stand_for), "costs")


def every_case(config: pytest.Config) -> bool:
    """Whether a run takes all."""
    return bool(config.getoption("--every-case") or config.getoption("--slow"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the page says, but for tests that are named by their ids."""
    named = tuple(name for name in config.args if "::" in name)
    if every_case(config):
        return
    shares, of_test = read_shares(), defaultdict[str, list[Any]](list)
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in shares and "slow" not in item.keywords and not (named and item.nodeid.startswith(named)):
            of_test[test].append(item)
    left_out = set[pytest.Item]()
    for test, group in of_test.items():
        kept = share_of([(item.nodeid, item.callspec.indices) for item in group], shares[test])
        left_out.update(item for item in group if item.nodeid not in kept)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


class Costs:
    """Writes a line for every test: processor seconds, of children too, for how many cases it stands, and its id."""

    def __init__(self, folder: Path, stand_for: dict[str, int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.stand_for = stand_for
        self._file: IO[str] | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self._file is None:
            self._file = (self.folder / f"{os.getpid()}.txt").open("a", buffering=1, encoding="utf-8")
        before = _processor_time()
        found = yield
        cases = self.stand_for.get(item.nodeid.partition("[")[0], 1)
        self._file.write(f"{_processor_time() - before:.3f} {cases} {item.nodeid}\n")
        return found


def _processor_time() -> float:
    return sum(os.times()[:4])


def shares_of(lines: list[str]) -> Iterator[str]:
    """The lines of the page, of such as `Costs` writes."""
    costs: dict[str, list[float]] = defaultdict(list)
    of_modes = set[str]()
    for line in lines:
        seconds, cases, name = line.split(" ", 2)
        test, _, parameters = name.partition("[")
        costs[test] += [float(seconds)] * int(cases)
        if parameters.startswith(MODES):
            of_modes.add(test)
    for test, each in sorted(costs.items()):
        least = 1 if sum(each) > DEAR * len(each) and test not in of_modes else CASES
        every = min(ceil(sum(each) / SECONDS), len(each) // least, MOST)
        if every > 1 and not test.startswith(WHOLE):
            yield f"{every} {sum(each):.0f} {test}"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write tests/shares.txt from measured costs.")
    parser.add_argument("costs", type=Path, help="the folder that --costs has written")
    lines = [line for file in sorted(parser.parse_args().costs.iterdir()) for line in file.read_text().splitlines()]
    PAGE.write_text(HEAD + "".join(f"{line}\n" for line in shares_of(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
