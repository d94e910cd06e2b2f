"""Attention's kernels on the emulated device against the eager rule: any extents, masks, random numbers, lane orders.

The emulated device finds races, reads of what nobody wrote and lanes that do not meet.
"""

from __future__ import annotations

import numpy as np
import pytest

from autojit.codegen.cuda.entry_point import entry_text
from autojit.core.dtypes import DType, bfloat16, float16, float32
from autojit.ops.attention import Attention
from tests.codegen.cuda.attention_kernels import Array, computed, drawn, mask_for, text_of, with_adjoint
from tests.codegen.cuda.grids import LANE_ORDERS
from tests.ptxas import ARCHITECTURES, Share, as_loaded, needs_ptxas, ptx_of, shares

# queries, keys, elements of a key, elements of a value; matrices: none of them divides a tile in all
EXTENTS = {
    "one tile": ((5, 7, 3, 4), ()),
    "narrow": ((37, 21, 9, 17), (2,)),
    "square": ((40, 40, 20, 20), (1, 2)),
    "wide": ((17, 18, 66, 5), ()),
}
TOLERANCE = {float32: 1e-5, float16: 2.0**-9, bfloat16: 2.0**-6}
"""Of the largest magnitude: weights of halves are rounded to halves before they multiply."""


def assert_near(found: list[Array], expected: list[Array], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        one, other = (np.asarray(x).astype(np.float64) for x in (one, other))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * max(float(np.abs(other).max()), 1e-3))


def check(op: Attention, operands: list[Array], dtype: DType, seed: int, architecture: str = "sm_90") -> None:
    """The op and its derivative in one order of lanes each: which one, the seed says."""
    generator = np.random.default_rng(seed)
    adjoint, all_operands = with_adjoint(op, operands, generator)
    order = LANE_ORDERS[seed % 2]
    found = computed(op, operands, order=order, architecture=architecture)
    assert_near(found, list(op.eager(*operands)), TOLERANCE[dtype])
    other = LANE_ORDERS[(seed + 1) % 2]
    found = computed(adjoint, all_operands, order=other, architecture=architecture)
    assert_near(found, list(adjoint.eager(*all_operands)), 4 * TOLERANCE[dtype])


@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", EXTENTS)
def test_kernels_compute_the_eager_rule(name: str, is_causal: bool) -> None:
    extents, batch = EXTENTS[name]
    seed = 2 * list(EXTENTS).index(name) + is_causal
    operands = drawn(np.random.default_rng(seed), extents, batch, float32)
    check(Attention(0.4, is_causal, False, 0.0), operands, float32, seed)


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_masks_remove_keys_and_a_query_without_any_has_no_part_in_anything(kind: str) -> None:
    generator = np.random.default_rng(7)
    operands = drawn(generator, (18, 35, 18, 12), (2,), float32)
    operands.append(mask_for(generator, operands, kind))
    op = Attention(0.3, False, True, 0.0)
    check(op, operands, float32, 7)
    values, _ = computed(op, operands)
    assert (values[:, 9] == 0).all()


def test_dropped_weights_are_those_of_the_eager_rule() -> None:
    operands = drawn(np.random.default_rng(8), (17, 18, 18, 8), (2,), float32)
    check(Attention(0.3, False, False, 0.3), [*operands, np.array([5, 1 << 33])], float32, 8)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_halves_are_added_up_in_float32(dtype: DType) -> None:
    operands = drawn(np.random.default_rng(9), (18, 36, 18, 16), (), dtype)
    check(Attention(0.3, True, False, 0.0), operands, dtype, 9)


def test_a_gpu_without_tensor_cores_for_float32_multiplies_lane_by_lane() -> None:
    operands = drawn(np.random.default_rng(10), (21, 18, 20, 12), (), float32)
    check(Attention(0.3, True, False, 0.0), operands, float32, 10, architecture="sm_75")


def test_what_cannot_be_split_is_multiplied_lane_by_lane() -> None:
    """Large, tiny and infinite elements: an infinite one makes its column of values infinite, and no other."""
    q, k, v = drawn(np.random.default_rng(11), (20, 33, 24, 20), (), float32)
    k[3] *= np.float32(2.0**-120)
    v[5, 2] = np.inf
    v[6, 3] *= np.float32(2.0**100)
    op = Attention(0.3, False, False, 0.0)
    with np.errstate(all="ignore"):
        (found, _), (expected, _) = computed(op, [q, k, v]), op.eager(q, k, v)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert np.isinf(found[:, 2]).all() and np.isfinite(np.delete(found, 2, 1)).all()


def test_a_score_that_is_no_number_makes_its_query_none() -> None:
    q, k, v = drawn(np.random.default_rng(12), (18, 20, 20, 8), (), float32)
    q[4] = np.nan
    with np.errstate(all="ignore"):
        found, _ = computed(Attention(0.3, False, False, 0.0), [q, k, v])
    assert np.isnan(found[4]).all() and np.isfinite(np.delete(found, 4, 0)).all()


def _texts(share: Share) -> list[str]:
    """PTX of both ops for a share of large operands: what layers of models have."""
    generator, texts = np.random.default_rng(0), []
    cases = (
        (float32, (128, 128, 64, 64), True, "", 0.0),
        (float32, (100, 90, 32, 32), False, "float32", 0.1),
        (float32, (128, 128, 128, 128), False, "", 0.0),
        (float16, (128, 128, 64, 64), False, "bool", 0.0),
        (bfloat16, (128, 128, 128, 128), True, "", 0.0),
    )
    for dtype, extents, is_causal, kind, dropped in share.of(cases):
        operands = drawn(generator, extents, (), dtype)
        operands += [mask_for(generator, operands, kind)] if kind else []
        operands += [np.array([1, 2])] if dropped else []
        op = Attention(0.125, is_causal, bool(kind), dropped)
        for one, given in ((op, operands), with_adjoint(op, operands, generator)):
            text = text_of(one, given, share.architecture)
            while text is not None:
                texts.append(entry_text(text, [16] * len(text.buffers), {}))
                text = text.combine
    return ptx_of(texts, share.architecture)


MOST_REGISTERS = dict.fromkeys(ARCHITECTURES, 168) | {"sm_75": 192}
"""Three blocks of 128 threads then share a processor; where lanes multiply by themselves, wide ones take more."""


@needs_ptxas
@shares(of_the_oldest=1)
def test_kernels_assemble_without_spills(share: Share) -> None:
    """The oldest has no tensor cores that multiply these: what it prints is its own."""
    for number, assembled in enumerate(as_loaded(_texts(share), share.architecture)):
        assert assembled.spilled_bytes == 0, number
        assert assembled.registers <= MOST_REGISTERS[share.architecture], number
        assert assembled.shared_bytes <= 48 * 1024, number
