"""What a jitted function tells of two calls that differ names the argument, and both forms of what differs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.sizes import named_size
from autojit.jit.arguments import describe_difference, leaf_names, signature
from autojit.jit.captures import JitStats
from autojit.jit.guards import shown
from autojit.jit.open_numbers import OpenLeaves
from autojit.jit.pytree import flatten


def with_grad(dtype: Any) -> aj.Tensor:
    made = aj.zeros(2, dtype=dtype, requires_grad=True)
    made.grad = aj.zeros(2, dtype=dtype)
    return made


FORMS: tuple[tuple[Any, str], ...] = (
    (aj.zeros(2), "f32[2]"),
    (aj.zeros(3, dtype=aj.float64), "f64[3]"),
    (aj.zeros(2, requires_grad=True), "f32[2] requires_grad"),
    (with_grad(aj.float32), "f32[2] requires_grad with .grad"),
    (np.zeros((2, 3)), "array float64[2, 3]"),
    (np.zeros(4, np.int8), "array int8[4]"),
    (1.5, "1.5"),
    (7, "7"),
    (True, "True"),
    ("text", "'text'"),
    (object(), "another object"),
)


def of(*leaves: Any, **named: Any) -> tuple[Any, ...]:
    given, tree = flatten((leaves, named))
    return signature(given, tree, OpenLeaves((), {}), {})


def test_the_argument_is_named_with_its_two_forms() -> None:
    def function(first: Any, second: Any) -> None:
        pass

    for (a, a_text), (b, b_text) in itertools.product(FORMS, FORMS):
        if a is b:
            continue
        names = leaf_names(function, flatten(((1, a), {}))[1])
        told = describe_difference(of(1, a), of(1, b), names)
        assert told == f"argument second: {a_text} -> {b_text}"
        assert describe_difference(of(a), of(b), ()) == f"argument leaf 0: {a_text} -> {b_text}"
    assert "structure" in describe_difference(of(1), of(1, 2), ()) and "structure" in describe_difference(
        of(x=1), of(y=1), ()
    )
    assert describe_difference(of(1), of(1), ()) == "gradient mode changed"


def test_leaves_are_named_after_parameters_and_numbered_in_containers() -> None:
    def function(x: Any, pair: Any, *rest: Any, flag: Any = None) -> None:
        pass

    def names(*args: Any, **kwargs: Any) -> list[str]:
        return leaf_names(function, flatten((args, kwargs))[1])

    assert names(1, 2) == ["x", "pair"]
    assert names(1, [2, {"a": 3}], flag=4) == ["x", "pair[0]", "pair[1]", "flag"]
    assert names(1, 2, 3, 4, 5)[:3] == ["x", "pair", "rest"] and len(names(1, 2, 3, 4, 5)) == 5
    assert leaf_names(max, flatten(((1, 2), {}))[1]) == ["argument 0", "argument 1"]


@pytest.mark.parametrize("length", [1, 76, 77, 78, 79, 90, 200])
def test_a_value_is_shown_in_at_most_80_characters(length: int) -> None:
    text = shown("x" * length)
    assert len(text) == min(length + 2, 80)
    assert text == repr("x" * length) if length + 2 <= 80 else text == repr("x" * length)[:77] + "..."


def test_items_are_shown_up_to_four() -> None:
    assert [shown([1] * n).count("1") for n in range(7)] == [0, 1, 2, 3, 4, 4, 4]
    assert ["..." in shown([1] * n) for n in range(7)] == [False] * 5 + [True] * 2
    assert shown(aj.zeros(2, 3)) == "f32[2, 3]" and shown(len) == "<len>" and shown(object()) == "<object>"


class _Node:
    """A compiled part that calls so many ops back."""

    def __init__(self, fallbacks: int) -> None:
        self.parts, self.lowered = [self], self
        self.fallbacks = [None] * fallbacks


def test_captures_and_what_they_took_add_up() -> None:
    stats = JitStats()
    for count, trace_s, compile_s, made in ((1, 0.5, 2.0, [1, 2]), (2, 0.25, 4.0, [3]), (3, 1.0, 8.0, [])):
        stats.add([_Node(n) for n in made], trace_s, compile_s)  # type: ignore[misc]
        assert stats.captures == count
    assert (stats.capture_s, stats.compile_s, stats.fallbacks) == (1.75, 14.0, 6)


def variants() -> list[tuple[str, aj.Tensor]]:
    """Tensors of one type; those that a capture may take for one another have one name."""
    leaf, hooked = aj.zeros(2, requires_grad=True), aj.zeros(2, requires_grad=True)
    hooked.register_hook(lambda g: g)
    twice = aj.zeros(2, requires_grad=True)
    for _ in range(2):
        twice.register_hook(lambda g: g)
    inner = leaf * 1
    inner.register_hook(lambda g: g)
    lasting = aj.zeros(2, requires_grad=True)
    lasting.grad = aj.zeros(2, requires_grad=True) * 1
    with aj.inference_mode():
        inferred, view = aj.zeros(2), aj.zeros(4)[:2]
    return [
        ("plain", aj.zeros(2)),
        ("plain", aj.zeros(4)[:2]),
        ("made in inference mode", inferred),
        ("made in inference mode", view),
        ("leaf", leaf),
        ("leaf", aj.zeros(4).requires_grad_()[:2].detach().requires_grad_()),
        ("leaf with hooks", hooked),
        ("leaf with other hooks", twice),
        ("result", leaf * 1),
        ("result", inner),
        ("parameter", aj.nn.Parameter(aj.zeros(2))),
        ("with grad", with_grad(aj.float32)),
        ("with a grad that has a history", lasting),
    ]


def test_calls_share_a_capture_if_their_tensors_are_of_one_kind_in_the_same_places() -> None:
    known = variants()
    for (name, a), (other, b) in itertools.product(known, known):
        assert (of(a) == of(b)) == (name == other), (name, other)
    x, y, z = (aj.zeros(2) for _ in range(3))
    for kind in (lambda t: t, lambda t: t.clone().requires_grad_()):
        x, y, z = kind(x), kind(y), kind(z)
        calls = [(p, q, r) for p in (x, y, z) for q in (x, y, z) for r in (x, y, z)]
        for one, two in itertools.product(calls, calls):
            same_pattern = all((one[i] is one[j]) == (two[i] is two[j]) for i in range(3) for j in range(3))
            assert (of(*one) == of(*two)) == same_pattern


def test_open_extents_stand_in_a_signature_for_those_of_the_call() -> None:
    open_shape = (named_size("s0", 2), 3)
    for make in (aj.zeros, np.zeros):
        leaves, tree = flatten(((make((2, 3)), 1.5), {}))
        others, _ = flatten(((make((5, 3)), 1.5), {}))
        opened = signature(leaves, tree, OpenLeaves((), {}), {0: open_shape})
        assert (
            opened
            == signature(others, tree, OpenLeaves((), {}), {0: open_shape})
            != signature(leaves, tree, OpenLeaves((), {}), {})
        )
        assert len(opened[1]) == 2
        narrow, _ = flatten(((make((5, 3)).astype(np.float32) if make is np.zeros else make((5, 3)).int(), 1.5), {}))
        assert opened != signature(narrow, tree, OpenLeaves((), {}), {0: open_shape})


def test_numbers_that_are_left_open_count_by_their_class() -> None:
    def numbered(*numbers: Any) -> tuple[Any, ...]:
        leaves, tree = flatten((numbers, {}))
        return signature(leaves, tree, OpenLeaves(range(len(leaves)), {}), {})

    assert numbered(1.5) == numbered(2.5) != numbered(2) and of(1.5) != of(2.5)
