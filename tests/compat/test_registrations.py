"""What packages do as they are imported: they load operators, and tell an exporter and a quantiser about them."""

from __future__ import annotations

import importlib

import pytest

import autojit as aj


def test_packages_go_on_without_their_operators() -> None:
    with pytest.raises(OSError, match="written for PyTorch itself"):
        aj.ops.load_library("_C.so")


def test_registrations_for_an_export_are_taken_and_parts_that_are_used_are_refused() -> None:
    with aj.torch_names() as torch:
        helper = importlib.import_module("torch.onnx.symbolic_helper")
        opset = importlib.import_module("torch.onnx.symbolic_opset11")
        assert helper.parse_args("v", "f")(len) is len
        torch.onnx.register_custom_op_symbolic("mine::op", len, 11)
        stubs = importlib.import_module("torch.ao.quantization")
        assert stubs.DeQuantStub()(stubs.QuantStub()(3)) == 3
        for module, name in ((opset, "squeeze"), (torch.onnx, "export"), (stubs, "prepare")):
            with pytest.raises(AttributeError, match="here: "):
                getattr(module, name)
    with pytest.raises(AttributeError):
        aj.onnx


def test_a_fake_may_come_before_its_operator() -> None:
    @aj.library.register_fake("late::doubled")
    def _(x: aj.Tensor) -> aj.Tensor:
        return aj.empty_like(x)

    library = aj.library.Library("late", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: 2 * x, "CPU")
    assert aj.ops.late.doubled(aj.ones(2)).tolist() == [2, 2]
    assert aj.ops.late.doubled(aj.ones(3, device="meta")).shape == (3,)


def test_calls_can_leave_autocast_out() -> None:
    from autojit import _C

    casting = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU) | _C.DispatchKeySet(_C.DispatchKey.AutocastCUDA)
    a = aj.ones(2, 2)
    with aj.autocast("cpu"):
        with _C._ExcludeDispatchKeyGuard(casting):
            assert (a @ a).dtype is aj.float32
        assert (a @ a).dtype is aj.bfloat16
    with (
        pytest.raises(RuntimeError, match="no layer Autograd"),
        _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(_C.DispatchKey.Autograd)),
    ):
        pass


def test_an_override_of_einsum_is_told_the_operands_one_by_one() -> None:
    class Told(aj.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return len(args) if func is aj.einsum else super().__torch_function__(func, types, args, kwargs)

    x = aj.ones(2, 2).as_subclass(Told)
    assert aj.einsum("ij,jk", (x, x)) == aj.einsum("ij,jk", x, x) == 3


def test_other_kinds_of_devices_can_be_asked_about() -> None:
    assert not aj.is_autocast_enabled("mps") and aj._dynamo.is_compile_supported("cpu")
    with pytest.raises(RuntimeError, match="Expected one of"):
        aj.is_autocast_enabled("toaster")
