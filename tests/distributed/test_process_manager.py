"""Processes that join without a launcher of MPI's: the manager's protocol, and jobs where the library is MPICH."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from autojit import launch as launcher
from autojit.core.errors import UsageError
from autojit.distributed.joining import address_of, connected
from autojit.distributed.process_manager import ProcessManager
from tests.distributed.worlds import HERE, ROOT, TIME_LIMIT_S, needs_mpi


class Client:
    """What MPICH says to its manager."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address)
        self.lines = self.connection.makefile("r", newline="\n")

    def ask(self, text: str) -> dict[str, str]:
        self.connection.sendall(f"{text}\n".encode())
        return dict(pair.split("=", 1) for pair in self.lines.readline().split())


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_one_puts_all_get_behind_the_barrier(size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()[:2]
    serving = threading.Thread(target=ProcessManager(size, listener).serve)
    serving.start()

    def process(rank: int) -> list[str]:
        client = Client(address)
        assert client.ask("cmd=init pmi_version=1 pmi_subversion=1")["cmd"] == "response_to_init"
        name = client.ask("cmd=get_my_kvsname")["kvsname"]
        most = int(client.ask("cmd=get_maxes")["vallen_max"])
        value = f"{rank}={'x' * (most - 10)}"
        assert client.ask(f"cmd=put kvsname={name} key=card{rank} value={value}")["rc"] == "0"
        assert client.ask("cmd=barrier_in")["cmd"] == "barrier_out"
        found = [client.ask(f"cmd=get kvsname={name} key=card{r}")["value"] for r in range(size)]
        assert client.ask(f"cmd=get kvsname={name} key=PMI_process_mapping")["rc"] == "-1"
        assert client.ask("cmd=lookup_name service=none")["rc"] == "-1"
        assert client.ask("cmd=barrier_in")["rc"] == "0"
        assert client.ask("cmd=finalize")["cmd"] == "finalize_ack"
        client.lines.close()
        client.connection.close()
        return [text[:2] for text in found]

    with ThreadPoolExecutor(size) as pool:
        for found in pool.map(process, range(size)):
            assert found == [f"{rank}=" for rank in range(size)]
    serving.join()


def test_where_rank_0_is() -> None:
    variables = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    assert address_of(None, variables) == address_of("env://", variables) == ("node1", 29500)
    assert address_of("env://", variables | {"TORCHELASTIC_USE_AGENT_STORE": "True"}) == ("node1", 29501)
    assert address_of("tcp://10.0.0.1:23456", {}) == ("10.0.0.1", 23456)
    for method, given in ((None, {}), ("file:///tmp/x", variables), ("tcp://here", {}), (None, {"MASTER_ADDR": "x"})):
        assert address_of(method, given) is None


def test_who_does_not_answer_is_told() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    address: Any = taken.getsockname()[:2]
    with pytest.raises(UsageError, match=r"cannot listen[\s\S]*another MASTER_PORT"):
        connected(0, 2, address, 0.0)
    taken.close()
    with pytest.raises(UsageError, match=r"rank 0 does not answer[\s\S]*start all ranks"):
        connected(1, 2, address, 0.0)


def _is_mpich() -> bool:
    return not launcher.is_open_mpi(launcher.find_mpiexec())


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_processes_of_any_launcher_are_one_job(ranks: int) -> None:
    """With MPICH; other libraries say what to start."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, str(HERE / "worlds.py"), "collectives_on_ranks", "check_async_handles", "check_groups"]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    started = [
        subprocess.Popen(
            program, env=os.environ | variables | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    texts = [process.communicate(timeout=TIME_LIMIT_S)[0] for process in started]
    for process, text in zip(started, texts, strict=True):
        if _is_mpich():
            assert (process.returncode, text.count("all hold")) == (0, 1), text
        else:
            assert f"autojit.launch -n {ranks}" in text, text
