"""LLVM IR text to an object file in memory, or to the PTX of a GPU: the target says which.

Objects are position-independent and use the small code model: constants are read relative to the instruction pointer,
and whatever is outside the object is reached through stubs the loader makes. Nothing here runs code. Every call uses
an LLVM context of its own, so a failed parse leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autojit.codegen.target import Emission, Target
from autojit.codegen.target_functions import with_definitions
from autojit.core.errors import CompileError
from autojit.core.once import once
from autojit.core.undivided_work import undivided
from autojit.runtime.background import on_all_cores
from autojit.runtime.llvm_defects import KNOWN, mended

if TYPE_CHECKING:
    import llvmlite.binding as llvm_types

_UNLOCKED_CALLS = (
    "LLVMPY_RunNewModulePassManager",
    "LLVMPY_TargetMachineEmitToMemory",
    "LLVMPY_GetBufferStart",
    "LLVMPY_GetBufferSize",
    "LLVMPY_DisposeMemoryBuffer",
)
_FILE_TYPES: dict[Emission, int] = {"object": 1, "ptx": 0}  # of LLVM's C interface: PTX is the assembly of its target
_per_thread = threading.local()
Levels = tuple[int, int | None]
"""How hard LLVM works on a module, and its passes where that differs: see `compile_to_object`."""
USUAL: Levels = 2, None


def compile_to_object(ir_text: str, target: Target, opt_level: int = 2, pass_level: int | None = None) -> bytes:
    """Compile a module of IR text to an object file, or to PTX for a target whose code comes as that.

    Args:
        ir_text: a whole module without triple and data layout, which are those of `target`.
        target: the machine to generate code for.
        opt_level: 0 to 3. 2 for loops; 0 for code that only branches and calls compiles ten times as fast.
        pass_level: 0 to 3 for the pass pipeline alone, where it is to differ: 0 inlines what must be and no more.

    Raises:
        CompileError: LLVM rejects the text; the text is kept in the file the message names.
    """
    with undivided:
        return _compile(ir_text, target, opt_level, pass_level)


def compile_all(ir_texts: Sequence[str], target: Target, levels: Sequence[Levels] | None = None) -> list[bytes]:
    """Compile several modules, on as many threads as there are cores; the same bytes as one by one.

    ``levels`` gives each module's level and that of its passes (see `compile_to_object`).

    Raises:
        CompileError: LLVM rejects a text.
    """
    with undivided:
        requests = list(zip(ir_texts, levels or [USUAL] * len(ir_texts), strict=True))
        if len(requests) < 2 or _unlocked() is None:
            return [_compile(text, target, *own) for text, own in requests]
        order = sorted(range(len(requests)), key=lambda k: -len(ir_texts[k]))  # the longest first

        def compile_one(k: int) -> bytes:
            text, own = requests[k]
            return _compile(text, target, *own)

        made = dict(zip(order, on_all_cores(compile_one, order, "compiling"), strict=True))
        return [made[k] for k in range(len(requests))]


def assembly(ir_text: str, target: Target, opt_level: int = 2) -> str:
    """The assembly text that `compile_to_object` would encode, for `show("asm")` and tests."""
    with undivided:
        machine, module = _optimised_module(ir_text, target, opt_level)
        with module:
            return str(machine.emit_assembly(module))


def optimised_ir(ir_text: str, target: Target, opt_level: int = 2) -> str:
    """The IR text after LLVM's passes, before instruction selection."""
    with undivided, _optimised_module(ir_text, target, opt_level)[1] as module:
        return str(module)


@once
def llvm_identity() -> str:
    """Names the LLVM that compiles here, for cache keys: llvmlite's version and the size of its library in bytes.

    Reads no LLVM code, because a process that finds everything in the cache never loads LLVM.
    """
    import llvmlite  # `once` lets no fork come in between

    folder = os.path.join(os.path.dirname(str(llvmlite.__file__)), "binding")
    names = sorted(name for name in os.listdir(folder) if "llvmlite" in name)
    sizes = [f"{name}:{os.path.getsize(os.path.join(folder, name))}" for name in names]
    return f"llvmlite {llvmlite.__version__} {' '.join(sizes)}; mended: {KNOWN}"


def _optimised_module(
    ir_text: str, target: Target, opt_level: int, pass_level: int | None = None
) -> tuple[llvm_types.TargetMachine, llvm_types.ModuleRef]:
    import llvmlite.binding as llvm

    machine, head = _target_machine(target, opt_level)
    try:
        module = llvm.parse_assembly(head + with_definitions(ir_text, target), llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise _rejected(ir_text, str(error)) from None
    builder = llvm.create_pass_builder(
        machine, llvm.PipelineTuningOptions(opt_level if pass_level is None else pass_level)
    )
    passes = builder.getModulePassManager()
    unlocked = _unlocked()
    if unlocked is None:
        passes.run(module, builder)
    else:
        unlocked.LLVMPY_RunNewModulePassManager(passes, module, builder)
    if target.emit == "ptx":
        text = mended(str(module))
        if text is not None:
            module.close()
            module = llvm.parse_assembly(text, llvm.create_context())
    return machine, module


def _compile(ir_text: str, target: Target, opt_level: int, pass_level: int | None = None) -> bytes:
    machine, module = _optimised_module(ir_text, target, opt_level, pass_level)
    with module:
        unlocked = _unlocked()
        if unlocked is None:
            is_object = target.emit == "object"
            return bytes(machine.emit_object(module)) if is_object else machine.emit_assembly(module).encode()
        message = ctypes.c_char_p()
        buffer = unlocked.LLVMPY_TargetMachineEmitToMemory(
            machine, module, _FILE_TYPES[target.emit], ctypes.byref(message)
        )
        if not buffer:
            raise _rejected(ir_text, (message.value or b"").decode(errors="replace"))
        try:
            return ctypes.string_at(unlocked.LLVMPY_GetBufferStart(buffer), unlocked.LLVMPY_GetBufferSize(buffer))
        finally:
            unlocked.LLVMPY_DisposeMemoryBuffer(buffer)


@once
def _unlocked() -> Any:
    """llvmlite's library called without llvmlite's lock, or None when this llvmlite is built otherwise.

    The lock makes two threads compile no faster than one. LLVM itself needs none between contexts, and every compile
    has a context and a target machine of its own. Only the two long calls (and the buffer of the second) go this way.
    """
    import llvmlite.binding as llvm

    try:
        locked = llvm.ffi.lib
        library = ctypes.CDLL(locked._name)
        for name in _UNLOCKED_CALLS:
            function, declared = getattr(library, name), getattr(locked, name)
            function.argtypes, function.restype = declared.argtypes, declared.restype
            assert function.argtypes is not None
    except (AttributeError, OSError, AssertionError):
        return None
    return library


def _target_machine(target: Target, opt_level: int) -> tuple[Any, str]:
    """The calling thread's machine for `target` and the head of its modules; a machine is not safe to share by threads.

    The head, triple and data layout, is part of the text: the parser takes from it how accesses are aligned, and with
    another layout's 4 bytes a GPU loads a 64-bit number in two pieces.
    """
    machines: dict[tuple[Target, int], tuple[Any, str]] = _per_thread.__dict__.setdefault("machines", {})
    found = machines.get((target, opt_level))
    if found is None:
        found = _new_target_machine(target, opt_level)
        machines[target, opt_level] = found
    return found


def _new_target_machine(target: Target, opt_level: int) -> tuple[Any, str]:
    import llvmlite.binding as llvm

    _initialize_llvm(target.triple == llvm.get_process_triple())
    options = {"reloc": "pic", "codemodel": "small"} if target.emit == "object" else {"codemodel": "default"}
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt_level, **options
    )
    return machine, f'target datalayout = "{machine.target_data}"\ntarget triple = "{target.triple}"\n'


@once
def _initialize_llvm(native_only: bool) -> None:
    import llvmlite.binding as llvm

    if native_only:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # for inline assembly
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


def kept_text(text: str, suffix: str) -> str:
    """The path of a file with a text that a compiler rejects, for a report."""
    import tempfile  # slow to import and almost never needed

    handle, path = tempfile.mkstemp(prefix="autojit-", suffix=suffix, text=True)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return path


def _rejected(ir_text: str, reason: str) -> CompileError:
    return CompileError(
        "LLVM rejects the generated code",
        facts={"reason": " ".join(reason.split()) or "not given", "text": kept_text(ir_text, ".ll")},
        fix="this is a defect of autojit: report it with the file",
    )
