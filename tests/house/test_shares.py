"""A share of a law's cases: the size that the page says, every value while there is room, the same in every run."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from tests.shares import CASES as CASES_AT_LEAST
from tests.shares import DEAR, MOST, WHOLE, read_shares, share_of, shares_of

ROOT = Path(__file__).resolve().parents[2]
CASES = [(f"t[{a}-{b}-{c}]", {"a": a, "b": b, "c": c}) for a, b, c in product(range(12), range(2), range(3))]


def test_a_share_has_its_size_and_every_value() -> None:
    for every in (2, 3, 4):
        kept = share_of(CASES, every)
        assert len(kept) == len(CASES) // every
        for name in "abc":
            values = {case[name] for _, case in CASES}
            assert {case[name] for test, case in CASES if test in kept} == values
        assert kept == share_of(CASES[::-1], every)


def test_what_costs_much_in_many_cases_is_shared() -> None:
    lines = [f"0.5 1 tests/a.py::many[{k}]" for k in range(10 * MOST)]
    lines += [f"0.0005 1 tests/a.py::cheap[{k}]" for k in range(400)]
    lines += ["60 1 tests/a.py::one", *(f"9 1 {WHOLE[0]}test_b.py::page[{k}]" for k in range(9))]
    assert list(shares_of(lines)) == [f"{MOST} {5 * MOST} tests/a.py::many"]


def test_at_least_two_cases_are_run_and_of_dear_ones_one() -> None:
    shares = {}
    for test, mode, seconds in ("cheap", "", DEAR / 2), ("dear", "", 2 * DEAR), ("modes", "jit-", 2 * DEAR):
        lines = [f"{seconds} 1 tests/a.py::{test}[{mode}{k}]" for k in range(6)]
        shares |= {line.split("::")[1]: int(line.split()[0]) for line in shares_of(lines)}
    assert shares == {"cheap": 6 // CASES_AT_LEAST, "dear": 6, "modes": 6 // CASES_AT_LEAST}


def test_cases_of_a_share_stand_for_those_that_were_not_run() -> None:
    every = [f"0.5 1 tests/a.py::many[{k}]" for k in range(10 * MOST)]
    run = [f"0.5 {MOST} tests/a.py::many[{k}]" for k in range(10)]
    assert list(shares_of(run)) == list(shares_of(every)) != []


def test_the_page_names_tests_that_are_there() -> None:
    for test in read_shares():
        path, _, name = test.partition("::")
        assert f"def {name.split('::')[-1]}(" in (ROOT / path).read_text(encoding="utf-8"), test
        assert not test.startswith(WHOLE)
