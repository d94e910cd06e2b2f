"""The fuzzer's judge: what rounding explains it does not report, and nothing else is explained by it."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.testing.fuzz.running import Seen, load
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.verdicts import MORE_SHAKES, _is_open, _reads_alike, _Rounding, judge
from autojit.testing.fuzz.watching import Fact
from tests.testing.test_fuzz_findings import HEAD


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ("tensor(0.9714)\n", "tensor(0.9715)\n", "float64"),  # seed 2003494
        ("[ 1.0000, -0.5000]", "[0.9999, -0.5000]", "float64"),
        ("loss 1.000e-05", "loss 1.001e-05", "float64"),
        ("0.30000000000000004", "0.3", "float64"),
        ("(1.0000+2.0000j)", "(1.0001+2.0000j)", "float32"),
        ("2.", "2.0000", "float32"),
        ("1024.", "1025.", "bfloat16"),
    ],
)
def test_texts_whose_numbers_differ_by_rounding_read_alike(left: str, right: str, dtype: str) -> None:
    assert _reads_alike(left, right, dtype)
    assert _reads_alike(right, left, dtype)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("tensor(0.9714)", "tensor(0.9716)"),
        ("tensor(3.)", "tensor(4.)"),
        ("tensor(1.0000)", "tensor(inf)"),
        ("1.0000 2.0000", "1.0000"),
        ("a 1.0000", "b 1.0000"),
        ("call 3", "call 4"),
        ("1.0e-05", "1.0e-04"),
    ],
)
def test_texts_that_differ_by_more_do_not(left: str, right: str) -> None:
    assert not _reads_alike(left, right, "float64")


def test_signs_that_only_rounding_decides_are_told_from_wrong_values() -> None:
    """The bias of the keys has no influence on attention: Rprop goes by the signs of its rounding errors."""
    text = """
    net = filled(nn.MultiheadAttention(4, 2, batch_first=True), 44)
    opt = aj.optim.Rprop(net.parameters(), lr=0.05)
    @jit
    def step(x):
        y = net(x[None], x[None], x[None])[0]
        (y.tanh() ** 2).mean().backward()
        opt.step()
        WRONG
    see.watch(net=lambda: net)
    see.call(step, sample(3, 4, 3).T.contiguous()[:, :4] @ sample(1, 4, 4))
"""
    assert not judge(load(HEAD + text.replace("WRONG", "pass"), "signs"), "float64").is_finding  # seed 2005356
    wrong = "net.out_proj.bias.data.add_(1e-6 if jit is aj.jit else 0)"
    assert judge(load(HEAD + text.replace("WRONG", wrong), "wrong"), "float64").is_finding


def test_a_failed_call_that_leaves_nan_alone_has_changed_nothing() -> None:
    text = """
    seen = [float("nan"), 1.0]
    @jit
    def step(x):
        return x @ aj.ones(7, dtype=x.dtype)
    see.watch(seen=lambda: seen)
    see.call(step, sample(1, 3, 4))
"""
    verdict = judge(load(HEAD + text, "nan"), "float64")  # seed 3005258
    assert verdict.kind == "eager error", report(verdict)


def test_a_product_that_leaves_the_range_of_float16_in_eager_mode_only_is_no_finding() -> None:
    text = """
    x = aj.full((3,), 300.0, dtype=aj.float16)
    @jit
    def step(x):
        return x * x * 0.001 + WRONG
    see.call(step, x)
    see.call(step, x * 0.1)
"""
    assert not judge(load(HEAD + text.replace("WRONG", "0"), "range"), "float16").is_finding  # seed 3004119
    wrong = text.replace("WRONG", "(50 if jit is aj.jit else 0)")
    assert judge(load(HEAD + wrong, "wrong"), "float16").is_finding


@pytest.mark.parametrize(
    ("moved", "found", "after_amplified"),
    [
        ([0.0, 0.2, 0.0], [0.2, 0.0, 0.0], True),  # a step along a gradient of nothing but rounding may go either way
        ([0.0, 0.2, 0.0], [0.9, 0.0, 0.0], False),
        ([0.0, 0.0, 0.0], [1e-3, 0.0, 0.0], False),
    ],
)
def test_after_an_amplified_rounding_numbers_move_as_their_neighbours_do(
    moved: list[float], found: list[float], after_amplified: bool
) -> None:
    """Draws do not show every outcome of what follows such a step; before one, each number answers for itself."""

    def seen(values: list[float]) -> Seen:
        return Seen([Fact("call 2: w", "value", np.array(values, np.float32))], None, "", None, None, [])

    rounding = _Rounding(lambda jit, see: None, seen([0.0, 0.0, 0.0]), "float32")
    rounding._others = [seen(moved)] * MORE_SHAKES
    compiled = seen(found).facts[0]
    assert not rounding.explains(0, compiled)
    assert rounding.explains(0, compiled, is_amplified=True) == after_amplified


@pytest.mark.parametrize(("shared", "is_open"), [([[], [0]], True), ([[], []], False), ([[0]], False)])
def test_strides_of_gradients_are_open_only_beside_a_returned_view(shared: list[list[int]], is_open: bool) -> None:
    """A step that returns a view of its argument and something computed from it: parts are added outside (91016001)."""
    found = Fact("after call 1: gradient of order 1[0]", "strides", (1, 3))
    facts = [Fact(f"call 1: result tensor {k}", "memory", arguments) for k, arguments in enumerate(shared)]
    seen = Seen([*facts, found], None, "", None, None, [])
    assert _is_open(found, seen, seen, lambda jit, see: None) == is_open
    assert not _is_open(Fact("call 1: result[0]", "strides", (1, 3)), seen, seen, lambda jit, see: None)
