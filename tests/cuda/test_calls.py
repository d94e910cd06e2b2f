"""Calls that programs make without a device do nothing; those that need one raise what torch raises."""

from __future__ import annotations

import pytest

import autojit as aj

pytestmark = pytest.mark.skipif(aj.cuda.is_available(), reason="there is a device")


def test_calls_of_every_program_pass() -> None:
    aj.cuda.manual_seed(0)
    aj.cuda.manual_seed_all(0)
    aj.cuda.seed()
    aj.cuda.seed_all()
    aj.cuda.empty_cache()
    with aj.cuda.device(-1):
        assert aj.cuda.memory_allocated() == aj.cuda.max_memory_reserved() == 0
    assert (aj.cuda.is_initialized(), aj.cuda.is_bf16_supported(), aj.cuda.get_arch_list()) == (False, False, [])
    aj.cuda.set_rng_state_all(aj.cuda.get_rng_state_all())
    with pytest.raises(ValueError, match="invalid literal"):
        aj.cuda.manual_seed("a")


@pytest.mark.parametrize(
    "name", ["synchronize", "current_device", "get_device_name", "get_device_properties", "Stream", "Event", "init"]
)
def test_calls_that_need_a_device_say_so(name: str) -> None:
    with pytest.raises(AssertionError, match=r"is_available\(\)"):
        getattr(aj.cuda, name)()


def test_mixed_precision_of_the_absent_device_is_off() -> None:
    with aj.cuda.amp.autocast(enabled=False):
        assert (aj.ones(2, 2) @ aj.ones(2, 2)).dtype is aj.float32
    with pytest.warns(UserWarning, match="Disabling"):
        assert not aj.cuda.amp.GradScaler().is_enabled()
    forward = aj.cuda.amp.custom_fwd(lambda ctx, x: x)
    context = type("Context", (), {})()
    assert forward(context, 3) == 3
    assert aj.cuda.amp.custom_bwd(lambda ctx, x: x)(context, 4) == 4


def test_other_libraries_answer_too() -> None:
    assert not aj.backends.mps.is_available()
    assert not aj.backends.mps.is_built()
    assert not aj.backends.openmp.is_available()
    assert not aj.backends.cuda.is_built()
    aj.backends.cuda.matmul.allow_tf32 = True
    aj.backends.cuda.matmul.allow_tf32 = False
    aj.backends.cuda.enable_flash_sdp(False)
    assert aj.backends.cuda.math_sdp_enabled()
    assert not aj.backends.cuda.flash_sdp_enabled()
    assert not aj.distributed.is_initialized()
    assert not aj.distributed.is_nccl_available()
