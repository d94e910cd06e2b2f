"""The C functions of a group of one process: copies. So a step with collectives is one native call there, too.

Their signatures are MPI's, as `collectives` calls them; the handle of a type is the bytes of an element. ``in_place``
and ``no_process`` are `IN_PLACE` and `NO_PROCESS`. Compiled once per machine.
"""

from __future__ import annotations

from autojit.codegen.cpu.plan.collectives import BROADCAST, MOVE, REDUCE, SEND_RECV
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction
from autojit.core.once import once

IN_PLACE = 1
NO_PROCESS = -2


@once
def lone_group_ir() -> str:
    """The whole module."""
    module = ModuleText()
    NativeFunction.define(module, _named("aj_lone_reduce", REDUCE), _write_reduce)
    NativeFunction.define(module, _named("aj_lone_move", MOVE), _write_move)
    NativeFunction.define(module, _named("aj_lone_broadcast", BROADCAST), lambda f: f.ret(0))
    NativeFunction.define(module, _named("aj_lone_send_recv", SEND_RECV), _write_send_recv)
    return module.text()


def _named(symbol: str, of: Signature) -> Signature:
    parameters = ", ".join(f"{kind} {name[1:]}" for kind, name in zip(of.kinds, of.names, strict=True))
    return Signature(symbol, parameters, of.returns)


def _copy(f: NativeFunction, to: str, source: str, count: str, width: str) -> None:
    f.move_bytes(to, source, f.mul(f.convert("zext", count, "i32"), width))


def _write_reduce(f: NativeFunction) -> None:
    send, receive, count, type, _, _ = f.parameters
    with f.when(f.test("ne", f.convert("ptrtoint", send, "ptr"), IN_PLACE)):
        _copy(f, receive, send, count, type)
    f.ret(0)


def _write_move(f: NativeFunction) -> None:
    send, count, type, receive, _, _, _ = f.parameters
    _copy(f, receive, send, count, type)
    f.ret(0)


def _write_send_recv(f: NativeFunction) -> None:
    send, count, type, to, _, receive, _, _, _, _, _, _ = f.parameters
    with f.when(f.test("sge", to, 0, "i32")):
        _copy(f, receive, send, count, type)
    f.ret(0)
