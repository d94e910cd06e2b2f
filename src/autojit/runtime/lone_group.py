"""What compiled steps call in a group of one process."""

from __future__ import annotations

from autojit.codegen.cpu.plan.lone_group import IN_PLACE, NO_PROCESS, lone_group_ir
from autojit.core.communicator import NativeCollectives
from autojit.core.once import once
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache

WIDTHS = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "float32": 4,
    "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


def _never(number: int, op: str) -> BaseException:
    return AssertionError(f"{op}: a copy has failed with {number}")


@once
def _code() -> LoadedObject:
    """The copies, which stay: groups know their addresses."""
    return load(default_cache().object(lone_group_ir(), cached_host_target(), opt_level=1, pass_level=0))


@once
def lone_group() -> NativeCollectives:
    """The functions of a group of one, which copy."""
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
    kinds = ("reduce", "move", "reduce", "move", "broadcast", "send_recv")
    addresses = {name: _code().address(f"aj_lone_{kind}") for name, kind in zip(names, kinds, strict=True)}
    return NativeCollectives(
        **addresses,
        communicator=0,
        datatypes=WIDTHS,
        operations={"sum": 1, "prod": 2, "max": 3, "min": 4},
        in_place=IN_PLACE,
        no_process=NO_PROCESS,
        no_status=0,
        failure=_never,
    )
