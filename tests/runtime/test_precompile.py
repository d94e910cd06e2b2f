"""The fixed modules are compiled beside the first capture, and whoever needs them finds them."""

from __future__ import annotations

from pathlib import Path

from .programs import run_python

COUNTING = """
    import threading
    from autojit.runtime import llvm, object_cache
    compiled = []
    original = llvm.compile_to_object
    def counted(text, *rest):
        compiled.append(threading.current_thread().name)
        return original(text, *rest)
    object_cache.compile_to_object = counted
"""


def test_nothing_is_compiled_twice(tmp_path: Path) -> None:
    output = run_python(
        COUNTING
        + """
    import autojit as aj
    from autojit.runtime.precompile import compile_ahead
    step = aj.jit(lambda x: (x * 2).sum())
    compile_ahead()
    assert step(aj.ones(4)).item() == 8
    assert step(aj.ones(4)).item() == 8
    for thread in threading.enumerate():
        if thread.name.startswith("autojit compiling"):
            thread.join()
    print(len(compiled), len(set(compiled)) > 0)
    """,
        AUTOJIT_CACHE_DIR=str(tmp_path),
    )
    count, any_compiled = output.split()
    assert any_compiled == "True"
    assert int(count) <= 4  # plan runner, entry point, pool, and the step's kernel where it is compiled alone


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    code = (
        COUNTING
        + """
    import autojit as aj
    step = aj.jit(lambda x: (x * 2).sum())
    step(aj.ones(4)), step(aj.ones(4))
    for thread in threading.enumerate():
        if thread.name.startswith("autojit compiling"):
            thread.join()
    print(len(compiled))
    """
    )
    run_python(code, AUTOJIT_CACHE_DIR=str(tmp_path))
    assert run_python(code, AUTOJIT_CACHE_DIR=str(tmp_path)).strip() == "0"


def test_a_second_process_does_not_write_the_text_of_products(tmp_path: Path) -> None:
    code = """
    import sys
    import autojit as aj
    from autojit.codegen.cpu.products import gemm
    written = []
    original = gemm.gemm_module
    gemm.gemm_module = lambda *args: written.append(args) or original(*args)
    assert aj.jit(lambda x: x @ x)(aj.ones(8, 8)).sum().item() == 512
    print(len(written))
    """
    assert [run_python(code, AUTOJIT_CACHE_DIR=str(tmp_path)).strip() for _ in range(2)] == ["1", "0"]
