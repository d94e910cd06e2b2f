"""The recorded history as an object: nodes, what they saved, hooks on saved tensors, hooks on several gradients."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.autograd import graph
from tests.autograd.functions import Square
from tests.autograd.modes import Mode
from tests.autograd.steps import leaf, run, same, vector

# -- nodes


def test_nodes_are_named_and_linked_as_in_torch() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    a = x + y
    b = a * 5
    node = b.grad_fn
    assert isinstance(node, graph.Node)
    assert node.name() == type(node).__name__ == "MulBackward0"
    assert node.next_functions == ((a.grad_fn, 0), (None, 0))
    assert [type(n).__name__ for n, _ in a.grad_fn.next_functions] == ["AccumulateGrad", "AccumulateGrad"]
    accumulator = a.grad_fn.next_functions[0][0]
    assert accumulator.variable is x
    assert accumulator.next_functions == ()
    assert graph._get_grad_fn_or_grad_acc(x) is accumulator
    assert node._sequence_nr() > a.grad_fn._sequence_nr()
    assert [tuple(m.shape) for m in node._input_metadata] == [(2,)]
    node.metadata["mine"] = 1
    assert b.grad_fn.metadata == {"mine": 1}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("AddBackward0", lambda x: x + 1), ("PowBackward0", lambda x: x**2), ("ExpBackward0", lambda x: x.exp()),
        ("CloneBackward0", lambda x: x.clone()), ("SumBackward0", lambda x: x.sum()),
        ("MeanBackward0", lambda x: x.mean()), ("ViewBackward0", lambda x: x.view(2, 1)),
        ("UnsqueezeBackward0", lambda x: x.unsqueeze(0)), ("TransposeBackward0", lambda x: x.view(1, 2).mT),
        ("CatBackward0", lambda x: aj.cat([x, x])), ("StackBackward0", lambda x: aj.stack([x, x])),
        ("SoftmaxBackward0", lambda x: x.softmax(0)), ("ToCopyBackward0", lambda x: x.float()),
        ("SelectBackward0", lambda x: x[0]), ("SliceBackward0", lambda x: x[:1]), ("VarBackward0", lambda x: x.var()),
        ("MmBackward0", lambda x: x.view(1, 2) @ x.view(2, 1)), ("DotBackward0", lambda x: x @ x),
        ("CopyBackwards", lambda x: aj.zeros(2, dtype=aj.float64).copy_(x)),
        ("MeanBackward1", lambda x: x.mean(0)), ("ExpandBackward0", lambda x: x.expand(3, 2)),
    ],
)  # fmt: skip
def test_results_are_named_after_the_function_that_was_called(name: str, function: Any) -> None:
    assert type(function(leaf(1.0, 2.0)).grad_fn).__name__ == name


def test_a_node_can_be_called() -> None:
    x = leaf(1.0, 2.0)
    node = (x**2).grad_fn
    same(node(vector(1.0, 10.0)), [2.0, 40.0])
    for wrong in ((), (vector(1.0), vector(1.0))):
        with pytest.raises(TypeError, match=rf"expected 1 arguments, got {len(wrong)} instead"):
            node(*wrong)


# -- saved tensors


def test_nodes_show_what_they_saved_under_torchs_names() -> None:
    x = leaf(1.0, 2.0)
    b = x * x
    c = x * b
    d = x.exp()
    assert b.grad_fn._saved_self is x
    assert c.grad_fn._saved_other is b
    saved = d.grad_fn._saved_result
    assert saved is not d
    assert saved.grad_fn is d.grad_fn
    same(saved, d.detach().numpy())
    assert (x * 2).grad_fn._saved_self is None
    assert (x**3).grad_fn._saved_exponent == 3
    assert x.sum(0).grad_fn._saved_dim == (0,)
    assert "_saved_result" in dir(d.grad_fn)
    with pytest.raises(AttributeError):
        _ = b.grad_fn._saved_nothing
    c.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        _ = c.grad_fn._saved_self


def test_hooks_can_be_set_on_one_saved_tensor() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t)
    same(y.grad_fn._saved_self, [2.0, 4.0])
    y.sum().backward()
    same(x.grad, [3.0, 6.0])
    with pytest.raises(RuntimeError, match="after it has been freed"):
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)


def test_hooks_of_saved_tensors_are_checked() -> None:
    x = leaf(1.0, 2.0)
    saved = (x * x).grad_fn._raw_saved_self
    with pytest.raises(TypeError, match="incompatible function arguments"):
        saved.register_hooks(lambda t: t)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        saved.register_hooks(1, 1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        saved.register_hooks(lambda t, b: t, lambda t: t)
    saved.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="already been set"):
        saved.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="None is forbidden"):
        (x * 2).grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"):
        x.exp().grad_fn._raw_saved_result.register_hooks(lambda t: t.add_(1), lambda t: t)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: 1)
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type int"):
        _ = y.grad_fn._saved_self
    with pytest.raises(RuntimeError, match="Trying to create a SavedTensor object from Python is forbidden"):
        aj.autograd.SavedTensor()


def test_custom_functions_show_what_they_saved() -> None:
    x = leaf(1.0, 2.0)
    y = Square.apply(x)
    assert y.grad_fn.saved_tensors == (x, None)
    saved = y.grad_fn._raw_saved_tensors
    assert all(isinstance(s, aj.autograd.SavedTensor) for s in saved)
    with pytest.raises(RuntimeError, match="None is forbidden"):
        saved[1].register_hooks(lambda t: t, lambda t: t)
    saved[0].register_hooks(lambda t: t * 3, lambda t: t)
    y.sum().backward()
    same(x.grad, [6.0, 12.0])
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        _ = y.grad_fn._raw_saved_tensors


def test_saved_tensors_go_through_the_hooks_of_the_context(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        packed: list[Any] = []
        with graph.saved_tensors_hooks(lambda t: (packed.append(1), t * 2)[1], lambda t: t):
            y = x * x
            z = y + (x * 3 + x / 7)  # numbers and sums save nothing
        assert len(packed) == 2
        return aj.autograd.grad(z.sum(), x)[0]

    same(run(mode, step), [4.0 + 3 + 1 / 7, 8.0 + 3 + 1 / 7])


def test_only_the_innermost_hooks_count(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        with graph.saved_tensors_hooks(lambda t: t * 100, lambda t: t):
            with graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
                y = x * x
            z = y * 1
        return aj.autograd.grad(z.sum(), x)[0]

    same(run(mode, step), [4.0, 8.0])


def test_saved_hooks_and_double_backward(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        with graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            (first,) = aj.autograd.grad((x**3).sum(), x, create_graph=True)
        return aj.autograd.grad(first.sum(), x)[0]

    same(run(mode, step), [6.0, 12.0])


def test_saved_tensors_can_wait_on_the_cpu(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        with graph.save_on_cpu(pin_memory=True):
            y = x * x
            z = y.exp()
        return aj.autograd.grad(z.sum(), x)[0]

    same(run(mode, step), [2 * 2.718281828459045, 4 * 54.598150033144236])


def test_saved_hooks_can_be_disabled() -> None:
    with graph.disable_saved_tensors_hooks("none here"):
        with pytest.raises(RuntimeError, match="none here"), graph.save_on_cpu():
            pass
        with (
            graph.disable_saved_tensors_hooks("nor here"),
            pytest.raises(RuntimeError, match="nor"),
            graph.save_on_cpu(),
        ):
            pass
    with (
        graph.save_on_cpu(),
        pytest.raises(RuntimeError, match="active"),
        graph.disable_saved_tensors_hooks("active already"),
    ):
        pass
    with graph.save_on_cpu():
        pass


def test_saved_tensors_may_be_changed_where_that_is_allowed(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        with graph.allow_mutation_on_saved_tensors():
            y = x.clone()
            part = y[:1]
            z = (y**2).sum() + y.exp().sum()
            y.sin_()
            part.mul_(3)
            return aj.autograd.grad(z, x)[0]

    same(run(mode, step), [2 + 2.718281828459045, 4 + 7.38905609893065])


def test_allowed_mutation_ends_with_its_context() -> None:
    x = leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors():
        z = (x * x).sum()
        with pytest.raises(RuntimeError, match="cannot be nested"), graph.allow_mutation_on_saved_tensors():
            pass
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        z.backward()


def test_versions_can_be_counted_by_hand() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    z = (y * y).sum()
    graph.increment_version(y)
    graph.increment_version([y, y])
    assert y._version == 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


# -- hooks on several gradients


def test_a_hook_on_several_gradients_waits_for_those_that_come(mode: Mode) -> None:
    a, b = leaf(1.0), leaf(2.0)

    def step() -> None:
        seen: list[Any] = []
        c, d = a * b, a * b
        handle = graph.register_multi_grad_hook((a, b, c, d), lambda gs: seen.append([g is not None for g in gs]))
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        (c + d).sum().backward(retain_graph=True)
        handle.remove()
        c.sum().backward()
        assert seen == [[True, True, True, False], [True, False, True, False], [True] * 4]

    mode(step)()


def test_a_hook_on_any_gradient_runs_once_per_pass(mode: Mode) -> None:
    a, b = leaf(1.0), leaf(2.0)

    def step() -> None:
        seen: list[Any] = []
        c = a * b
        with graph.register_multi_grad_hook((a, b, vector(1.0)), seen.append, mode="any"):
            c.sum().backward(retain_graph=True)
            assert len(seen) == 1
            c.sum().backward()
            assert len(seen) == 2
        with pytest.raises(ValueError, match="Expects mode to be one of"):
            graph.register_multi_grad_hook((a,), seen.append, mode="first")

    mode(step)()


# -- details


def test_nodes_describe_what_they_take() -> None:
    y = leaf(1.0, 2.0) * 2
    (metadata,) = y.grad_fn._input_metadata
    assert (metadata.shape, metadata.dtype, metadata.device) == (y.shape, y.dtype, y.device)
    assert not metadata.is_nested_tensor


def test_a_saved_tensor_that_was_detached_is_noticed() -> None:
    y = leaf(1.0) * 1
    z = y.sin()
    y.detach_()
    with pytest.raises(RuntimeError, match="saved tensor that has been detached in-place"):
        z.backward()
    y = leaf(1.0) * 1
    z = y.exp()
    y.detach_()
    z.backward()


def test_nodes_of_the_engine_have_their_namespace() -> None:
    x = leaf(1.0, 2.0)
    part, whole, zeroed = x.clone(), x.clone(), x.clone()
    part[0] = 1.0
    whole.copy_(x)
    zeroed.zero_()
    names = [t.grad_fn.name() for t in (part, whole, zeroed)]
    assert names == ["torch::autograd::CopySlices", "torch::autograd::CopyBackwards", "ZeroBackward0"]


def test_views_in_place_have_the_names_of_their_own_derivatives() -> None:
    for change, name in (
        (lambda t: t.transpose_(0, 1), "TransposeBackward1"), (lambda t: t.unsqueeze_(0), "UnsqueezeBackward1"),
        (lambda t: t.t_(), "TBackward1"), (lambda t: t.squeeze_(), "SqueezeBackward3"),
    ):  # fmt: skip
        t = leaf(1.0, 2.0).view(1, 2) * 1
        assert type(change(t).grad_fn).__name__ == name


def test_a_leaf_that_was_switched_off_gets_no_gradient(mode: Mode) -> None:
    def step(x: Any, w: Any) -> None:
        y = (x * w).sum()
        w.requires_grad_(False)
        y.backward()

    for _ in range(2):
        x, w = leaf(1.0), leaf(2.0)
        mode(step)(x, w)
        same(x.grad, [2.0])
        assert w.grad is None
