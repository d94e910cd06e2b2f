"""What becomes of a job one of whose ranks fails: the others are told, or ended, in seconds, and nobody is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autojit import launch as launcher
from autojit import launched_rank
from tests.distributed.kills import campaign
from tests.distributed.worlds import HERE, launch, needs_mpi

pytestmark = needs_mpi
PROGRAM = str(HERE / "fails_on_ranks.py")


def has_ulfm() -> bool:
    """Whether survivors of a killed rank go on: with Open MPI; others end all ranks."""
    return launcher.is_open_mpi(launcher.find_mpiexec())


def nobody_is_left(text: str) -> None:
    ranks = [int(pid) for pid in re.findall(r"^pid (\d+)$", text, re.MULTILINE)]
    until = time.monotonic() + 60
    while left := [pid for pid in ranks if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "victim"),
    [("kill-compiled", 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in [("kill", 0), ("kill", 1)])],
)
def test_the_others_of_a_killed_rank_are_told(how: str, victim: int) -> None:
    done = launch(3, [PROGRAM, how, str(victim)])
    nobody_is_left(done.stdout)
    if not has_ulfm():
        assert done.returncode != 0
        return
    assert done.returncode == 137, done.stdout
    told = re.findall(rf"told of \({victim},\) on", done.stdout)
    assert 1 <= len(told) <= 2, done.stdout  # the first one's end may come before the second one has said so
    assert all(float(s) < 10 for s in re.findall(r"after ([\d.]+) s", done.stdout))
    assert f"rank {victim} on" in done.stdout
    assert "SIGKILL" in done.stdout


def test_the_watchdog_names_the_op_and_who_is_missing() -> None:
    done = launch(3, [PROGRAM, "stop", "1"])
    nobody_is_left(done.stdout)
    assert done.returncode == 124, done.stdout
    assert re.search(r"has waited \d+ s in all_reduce", done.stdout), done.stdout
    assert "missing  ranks 1 on" in done.stdout


@pytest.mark.parametrize(
    ("how", "status"), [("raise", 1), *(pytest.param(*c, marks=pytest.mark.slow) for c in [("exit", 3), ("early", 1)])]
)
def test_a_program_that_fails_on_one_rank_ends_on_all(how: str, status: int) -> None:
    done = launch(2, [PROGRAM, how, "1"])
    nobody_is_left(done.stdout)
    assert done.returncode == status, done.stdout
    if how == "raise":
        assert "ValueError: only here" in done.stdout
        assert "launched_rank" not in done.stdout.partition("ValueError")[0]  # the traceback is the program's alone


def test_ranks_go_on_without_one_that_is_lost(tmp_path: Path) -> None:
    if not has_ulfm():
        pytest.skip("this MPI ends all ranks when one is lost")
    done = launch(3, [str(HERE / "loses_a_rank.py"), str(tmp_path), "1"], more=["--elastic"])
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("goes on at 6 with 2") == 2, done.stdout
    assert done.stdout.count("of 2: close True") == 2, done.stdout


@pytest.mark.slow
def test_nobody_is_left_of_two_hundred_kills() -> None:
    if not has_ulfm():
        pytest.skip("this MPI ends all ranks when one is lost")
    print(campaign(200, 4))


def test_a_rank_has_said_how_it_ended_when_the_library_sees_that_it_has(tmp_path: Path) -> None:
    """MPICH's launcher ends all processes as soon as a rank's connection to it is closed."""
    program = tmp_path / "ends.py"
    program.write_text("import os; os._exit(124)")
    mine, connection = os.pipe()
    variables = os.environ | {"PMI_FD": str(connection), launched_rank.REPORT: str(tmp_path), "RANK": "3"}
    line = [sys.executable, "-P", launched_rank.__file__, str(program)]
    process = subprocess.Popen(line, env=variables, pass_fds=[connection])
    os.close(connection)
    assert os.read(mine, 1) == b""
    assert (tmp_path / "3").read_text().split()[1] == "124"
    os.close(mine)
    assert process.wait() == 124


def test_the_launcher_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(["-n", "2", str(tmp_path / "none.py")]) == 2
    assert "no such program" in capsys.readouterr().err
    assert launcher.main(["--mpiexec", "no-such-mpiexec", PROGRAM]) == 2
    assert "autojit[mpi]" in capsys.readouterr().err


def test_a_failed_program_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "second_time.py"
    program.write_text(
        "import os, sys; print('run', os.environ['AUTOJIT_RESTART']); sys.exit(os.environ['AUTOJIT_RESTART'] == '0')"
    )
    done = launch(1, [str(program), "--flag"], more=["--max-restarts", "2"])
    assert done.returncode == 0, done.stdout
    assert "run 0" in done.stdout and "run 1" in done.stdout and "run 2" not in done.stdout
    assert "restart 1 of 2" in done.stdout


def test_a_program_for_torch_runs_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    done = launch(2, [str(HERE / "written_for_torch.py"), str(file), "--compile"], more=["--as-torch"])
    assert done.returncode == 0, done.stdout
    assert "saved" in done.stdout
    assert file.stat().st_size > 0
