"""Joins processes that no launcher of MPI's has started: those of torchrun, of ``multiprocessing``, of a scheduler.

What MPI's processes tell each other at the start, where each can be reached, goes by way of a *process manager*, which
is mostly the launcher. MPICH, and Intel MPI and MVAPICH, which are made of it, speak PMI-1 with theirs: lines of text
on a socket, to put and to get values and to wait for all. This program answers them: rank 0 starts it, at the address
that torchrun's variables name (`joining`), and independent processes become one job. A program of its own, as MPI keeps
the lock of Python while it begins; it imports nothing of autojit, and ends when the last process has. Open MPI speaks
PMIx, which is no such small thing.

Source: MPICH, ``src/pmi/src/pmi_v1.c`` (the client), ``src/pm/hydra`` (a server).
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping

_MAXES = {"kvsname_max": 256, "keylen_max": 64, "vallen_max": 1024}


class ProcessManager:
    """Answers the processes of a job, each on a thread of its own.

    Args:
        size: how many processes there are.
        listener: the socket to which they come.
    """

    def __init__(self, size: int, listener: socket.socket) -> None:
        self.size = size
        self.listener = listener
        self.values: dict[str, str] = {}
        space = f"autojit_{secrets.token_hex(8)}"  # MPICH names shared memory by it
        self.all_are_here = threading.Barrier(size)
        self.answers: dict[str, Callable[[Mapping[str, str]], dict[str, object]]] = {
            "init": lambda _: {"cmd": "response_to_init", "pmi_version": 1, "pmi_subversion": 1},
            "get_maxes": lambda _: {"cmd": "maxes", **_MAXES},
            "get_appnum": lambda _: {"cmd": "appnum", "appnum": 0},
            "get_my_kvsname": lambda _: {"cmd": "my_kvsname", "kvsname": space},
            "get_universe_size": lambda _: {"cmd": "universe_size", "size": size},
            "put": self._put,
            "get": self._get,
            "barrier_in": self._barrier,
            "finalize": lambda _: {"cmd": "finalize_ack"},
        }

    def serve(self) -> None:
        """Answer until all have left."""
        threads = []
        for _ in range(self.size):
            connection, _ = self.listener.accept()
            threads.append(threading.Thread(target=self._answer, args=(connection,)))
            threads[-1].start()
        self.listener.close()
        for thread in threads:
            thread.join()

    def _answer(self, connection: socket.socket) -> None:
        """Answer one process until it leaves."""
        with connection, connection.makefile("r", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                given = dict(pair.partition("=")[::2] for pair in line.split())
                answer = self.answers.get(given.get("cmd", ""))
                if answer is None:  # to start or to look up other jobs, or an abort, after which the process ends
                    told: dict[str, object] = {"cmd": given.get("cmd", "") + "_result", "rc": -1, "msg": "unknown"}
                else:
                    told = {"rc": 0, **answer(given)}
                words = " ".join(f"{name}={told[name]}" for name in ("cmd", *(k for k in told if k != "cmd")))
                connection.sendall(f"{words}\n".encode())

    def _put(self, given: Mapping[str, str]) -> dict[str, object]:
        self.values[given["key"]] = given["value"]
        return {"cmd": "put_result", "msg": "success"}

    def _get(self, given: Mapping[str, str]) -> dict[str, object]:
        found = self.values.get(given["key"])
        if found is None:
            return {"cmd": "get_result", "rc": -1, "msg": "key_not_found", "value": "unknown"}
        return {"cmd": "get_result", "msg": "success", "value": found}

    def _barrier(self, given: Mapping[str, str]) -> dict[str, object]:
        self.all_are_here.wait()
        return {"cmd": "barrier_out"}


if __name__ == "__main__":
    ProcessManager(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))).serve()
