"""script, trace, fork and wait; the switches of vendor libraries."""

from __future__ import annotations

import pytest

import autojit as aj


def test_script_and_trace_compile() -> None:
    scripted = aj.jit.script(lambda x: x.sin() + 1)
    traced = aj.jit.trace(lambda x: x.sin() + 1, aj.ones(3))
    x = aj.rand(3)
    for f in (scripted, traced):
        for _ in range(2):
            assert aj.allclose(f(x), x.sin() + 1)
        assert f.stats()["native_calls"] > 0


def test_a_forked_call_gives_its_result_or_its_exception() -> None:
    x = aj.rand(3, requires_grad=True)
    future = aj.jit.fork(lambda x: (x * x).sum(), x)
    assert future.done()
    aj.jit.wait(future).backward()
    assert x.grad is not None
    assert aj.allclose(x.grad, 2 * x)
    failed = aj.jit.fork(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.wait()


def test_forked_calls_share_the_graph_before_them() -> None:
    x = aj.rand(3, requires_grad=True)
    y = (x + 3) * (x + 4)

    def gradient(y: aj.Tensor) -> aj.Tensor:
        return aj.autograd.grad((y + y**2).sum(), x, retain_graph=True)[0]

    first, second = (aj.jit.fork(gradient, y) for _ in range(2))
    assert aj.equal(first.wait(), second.wait())


def test_no_vendor_library_is_used_and_its_switches_change_nothing() -> None:
    assert not aj.backends.cudnn.is_available()
    assert not aj.backends.mkl.is_available()
    assert not aj.backends.mkldnn.is_available()
    assert aj.backends.cudnn.version() is None
    with aj.backends.cudnn.flags(enabled=True, benchmark=True):
        assert aj.ones(2).sum().item() == 2.0


def test_pieces_of_an_argument_leave_a_compiled_step_as_views() -> None:
    x = aj.rand(6, requires_grad=True)
    for cut in (lambda x: x.split(2), lambda x: x.chunk(3), lambda x: x.reshape(3, 2).unbind()):
        step = aj.jit(cut)
        for _ in range(3):
            pieces = step(x)
            (gradient,) = aj.autograd.grad(pieces, [x], [aj.full((2,), float(k)) for k in range(3)])
            assert gradient.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]


def test_marks_of_torchscript_change_nothing() -> None:
    def plain(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    for mark in (aj.jit.unused, aj.jit.export, aj.jit.ignore, aj.jit.script_if_tracing, aj.jit.freeze):
        assert mark(plain) is plain
    assert aj.jit.ignore(drop=True)(plain) is plain
    assert aj.jit.optimize_for_inference(plain) is plain
    assert aj.jit.annotate(int, 3) == 3
    assert not aj.jit.is_scripting()
    assert not aj.jit.is_tracing()
    assert aj.jit(lambda x: x + int(aj.jit.is_tracing()))(aj.zeros(1)).item() == 1.0
