"""The counting of reference rows: ids, modes, what is missing, failed or without a compiled form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autojit.testing import rows

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

@pytest.fixture(params=["eager", "jit"])
def mode(request):
    return request.param

def test_S0_01_holds(mode): pass

def test_S1_02_fails_compiled(mode):
    assert mode == "eager"

@pytest.mark.parametrize("n", [1, 2])
def test_S3_100_has_no_compiled_form(mode, n, request):
    if mode == "jit":
        request.node.user_properties.append(("does not apply under jit", "it prints"))

def test_S3_111_is_skipped(mode):
    pytest.skip("no reason")

def test_S2_03_takes_no_mode(): pass

def test_S9_01_is_no_row(mode): pass

def test_another(): pass
"""


def test_there_are_230_rows() -> None:
    assert len(rows.ROWS) == 230
    assert rows.ROWS[0] == "S0-01"
    assert rows.ROWS[-1] == "S3-111"


@pytest.mark.parametrize(
    ("test_id", "found"),
    [
        ("tests/a.py::test_S1_32_name[eager]", ("S1-32", "eager")),
        ("tests/a.py::test_S3_111_name[float64-jit-3]", ("S3-111", "jit")),
        ("tests/a.py::TestIt::test_S0_07_name", ("S0-07", None)),
        ("tests/a.py::test_S0_07[jit]", ("S0-07", "jit")),
        ("tests/a.py::test_about_S0_07[jit]", None),
        ("tests/a.py::test_name", None),
    ],
)
def test_the_row_is_read_off_the_name(test_id: str, found: tuple[str, str | None] | None) -> None:
    assert rows.row_and_mode(test_id) == found


def test_the_report_counts_and_lists(tmp_path: Path) -> None:
    (tmp_path / "test_rows_here.py").write_text(TESTS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "autojit.testing.rows", ".", "--quiet", "--", "-p", "no:cacheprovider"], cwd=tmp_path,
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "rows passed, eager  4 of 230" in lines
    assert "rows passed, jit    2 of 230" in lines
    assert "not a row           S9-01" in lines
    assert "  S3-100  it prints" in lines
    assert "failed              S1-02 jit: test_rows_here.py::test_S1_02_fails_compiled[jit]" in lines
    assert "skipped             S3-111 eager: test_rows_here.py::test_S3_111_is_skipped[eager]" in lines
    missing = {line[:20]: line[20:].split() for line in lines if line.startswith("no test, ")}
    assert "S2-03" in missing["no test, jit        "]
    assert "S2-03" not in missing["no test, eager      "]
    assert len(missing["no test, eager      "]) == 230 - 5


def test_a_missing_folder_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        rows.main(["no/such/folder"])
    assert caught.value.code == 2
    assert "does not exist" in capsys.readouterr().err
