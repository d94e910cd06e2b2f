"""LLVM IR text to an object file in memory.

Objects are position-independent and use the small code model: constants are read relative to the instruction pointer,
and whatever lies outside the object is reached through stubs the loader makes. Nothing here runs code. Every call uses
an LLVM context of its own, so a failed parse leaves nothing behind.
"""

from __future__ import annotations

import os
import tempfile
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from autojit.codegen.target import HostTarget
from autojit.core.errors import CompileError

if TYPE_CHECKING:
    import llvmlite.binding as llvm_types

_per_thread = threading.local()
_compiling = threading.RLock()
"""Held while LLVM works, and across a fork, so that a forked child never inherits LLVM in the middle of something."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_compiling.release
    )


def compile_to_object(ir_text: str, target: HostTarget, opt_level: int = 2) -> bytes:
    """Compile a module of IR text to an object file.

    Args:
        ir_text: a whole module; its triple and data layout are set from `target`.
        target: the machine to generate code for.
        opt_level: 0 to 3, for the pass pipeline and the code generator alike.

    Raises:
        CompileError: LLVM rejects the text; the text is kept in the file the message names.
    """
    with _compiling:
        machine, module = _optimised_module(ir_text, target, opt_level)
        with module:
            return bytes(machine.emit_object(module))


def assembly(ir_text: str, target: HostTarget, opt_level: int = 2) -> str:
    """The assembly text that `compile_to_object` would encode, for `show("asm")` and tests."""
    with _compiling:
        machine, module = _optimised_module(ir_text, target, opt_level)
        with module:
            return str(machine.emit_assembly(module))


def optimised_ir(ir_text: str, target: HostTarget, opt_level: int = 2) -> str:
    """The IR text after LLVM's passes, before instruction selection."""
    with _compiling:
        _, module = _optimised_module(ir_text, target, opt_level)
        with module:
            return str(module)


@cache
def llvm_identity() -> str:
    """Names the LLVM that compiles here, for cache keys: llvmlite's version and the size of its library in bytes.

    Reads no LLVM code, because a process that finds everything in the cache never loads LLVM.
    """
    import llvmlite

    folder = os.path.join(os.path.dirname(str(llvmlite.__file__)), "binding")
    names = sorted(name for name in os.listdir(folder) if "llvmlite" in name)
    sizes = [f"{name}:{os.path.getsize(os.path.join(folder, name))}" for name in names]
    return f"llvmlite {llvmlite.__version__} {' '.join(sizes)}"


def _optimised_module(
    ir_text: str, target: HostTarget, opt_level: int
) -> tuple[llvm_types.TargetMachine, llvm_types.ModuleRef]:
    import llvmlite.binding as llvm

    machine, layout = _target_machine(target, opt_level)
    try:
        module = llvm.parse_assembly(ir_text, llvm.create_context())
        module.triple = target.triple
        module.data_layout = layout
        module.verify()
    except RuntimeError as error:
        raise _rejected(ir_text, str(error)) from None
    builder = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(opt_level))
    builder.getModulePassManager().run(module, builder)
    return machine, module


def _target_machine(target: HostTarget, opt_level: int) -> tuple[Any, str]:
    """The calling thread's machine for `target` and its data layout; a machine is not safe to share by threads."""
    machines: dict[tuple[HostTarget, int], tuple[Any, str]] = _per_thread.__dict__.setdefault("machines", {})
    found = machines.get((target, opt_level))
    if found is None:
        found = _new_target_machine(target, opt_level)
        machines[target, opt_level] = found
    return found


def _new_target_machine(target: HostTarget, opt_level: int) -> tuple[Any, str]:
    import llvmlite.binding as llvm

    _initialize_llvm(target.triple == llvm.get_process_triple())
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt_level, reloc="pic", codemodel="small"
    )
    return machine, str(machine.target_data)


@cache
def _initialize_llvm(native_only: bool) -> None:
    import llvmlite.binding as llvm

    if native_only:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


def _rejected(ir_text: str, reason: str) -> CompileError:
    handle, path = tempfile.mkstemp(prefix="autojit-", suffix=".ll", text=True)
    with os.fdopen(handle, "w") as file:
        file.write(ir_text)
    return CompileError(
        "LLVM rejects the generated code",
        facts={"reason": " ".join(reason.split()) or "not given", "text": path},
        fix="this is a defect of autojit: report it with the file",
    )
