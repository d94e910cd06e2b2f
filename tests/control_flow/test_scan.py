"""scan: compiled loops equal the Python loop, with derivatives of every order, in every mode and nest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.ir import evaluate, parse_graph
from autojit.transforms.adjoint import adjoint
from tests.control_flow.agreement import F, agree, derivatives, leaves


def weights(*shape: int, seed: int = 0) -> aj.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape) / 2
    return aj.tensor(values, requires_grad=True)


def test_running_sums() -> None:
    total, before = aj.scan(lambda c, x: (c + x, c), aj.tensor(0.0), aj.tensor([1.0, 2.0, 3.0]))
    assert total.item() == 6
    assert before.tolist() == [0, 1, 3]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_reversed_results_stand_where_their_slices_stood(is_compiled: bool) -> None:
    def run(xs: aj.Tensor) -> Any:
        return aj.scan(lambda c, x: (c + x, c * x), aj.zeros(2), xs, dim=1, reverse=True)

    xs = aj.arange(6.0).reshape(2, 3)
    total, products = (aj.jit(run) if is_compiled else run)(xs)
    assert total.tolist() == [3, 12]
    assert products.tolist() == [[0, 27], [2, 20], [0, 0]]


def test_a_recurrent_cell_to_second_order() -> None:
    start, xs, w, u = weights(2, 3), weights(5, 2, 4, seed=1), weights(3, 3, seed=2), weights(4, 3, seed=3)

    def run(start: aj.Tensor, xs: aj.Tensor) -> Any:
        h, ys = aj.scan(lambda h, x: ((h @ w + x @ u).tanh(), h * 2), start, xs)
        return derivatives((h**2).sum() + ys.sin().sum(), start, xs, w, u)

    agree(run, start, xs)


def test_an_lstm_cell_whose_products_leave_the_loop() -> None:
    steps, batch, hidden = 6, 3, 4
    xs, wx, wh, b = weights(steps, batch, hidden), weights(hidden, 16, seed=1), weights(hidden, 16, seed=2), weights(16)

    def cell(carry: Any, x: aj.Tensor) -> Any:
        h, c = carry
        i, f, o, g = (x @ wx + h @ wh + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h, c), h

    def run(xs: aj.Tensor) -> Any:
        start = aj.zeros(batch, hidden, dtype=F)
        _, ys = aj.scan(cell, (start, start), xs)
        return derivatives((ys**2).mean(), xs, wx, wh, b)

    compiled = agree(run, xs)
    text = str(compiled.newest.compiled.graph)
    forward = text[text.index("scan[") :].split("return")[0]
    assert forward.count("matmul") == 1  # of the hidden state; that of the slices is done once for all steps


def test_third_order() -> None:
    x = weights(3)

    def run(x: aj.Tensor) -> Any:
        y, _ = aj.scan(lambda c, s: (c * x.sin() + s, ()), x, aj.ones(4, 3, dtype=F))
        loss = (y**3).sum()
        (a,) = aj.autograd.grad(loss, x, create_graph=True)
        (b,) = aj.autograd.grad(a.sum(), x, create_graph=True)
        return a, b, aj.autograd.grad(b.sum(), x)

    agree(run, x)


def test_nests_of_any_kind() -> None:
    def step(carry: Any, x: Any) -> Any:
        return {"a": carry["a"] + x["p"], "b": (carry["b"][0] * 2,)}, [carry["a"], {"z": x["q"]}]

    def run(x: aj.Tensor) -> Any:
        return aj.scan(step, {"a": x, "b": (x,)}, {"p": x.expand(4, 3), "q": x.expand(4, 3)})

    carry, results = agree(run, weights(3).detach())(weights(3).detach())
    assert set(carry) == {"a", "b"}
    assert isinstance(results, list)


def test_what_is_none_stays_none() -> None:
    run = aj.jit(lambda x: aj.scan(lambda c, s: (c + s, None), x[0], x))
    assert run(aj.ones(3, 2))[1] is None


class Tripled(aj.autograd.Function):
    """A square whose derivative is wrong on purpose."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, y_bar: Any) -> Any:
        (x,) = ctx.saved_tensors
        return y_bar * x * 3


def test_functions_detach_and_hooks_in_the_body_count() -> None:
    x = weights(3)

    def step(h: aj.Tensor, u: aj.Tensor) -> Any:
        h = Tripled.apply(h) * 0.1 + u * h.detach()
        h.register_hook(lambda g: g * 0.5)
        return h, h.sum()

    def run(x: aj.Tensor) -> Any:
        h, ys = aj.scan(step, x, aj.linspace(0, 1, 4, dtype=F).reshape(4, 1).expand(4, 3))
        return derivatives((h**2).sum() + (ys**2).sum(), x)

    agree(run, x)


def test_views_of_outside_tensors_get_gradients() -> None:
    w, x = weights(3, 3), weights(3)

    def run(x: aj.Tensor) -> Any:
        y, _ = aj.scan(lambda c, s: (c * w[0] + w.mT[1], ()), x, x)
        return derivatives((y**3).sum(), w)

    agree(run, x)


def test_changes_in_place_inside_the_body() -> None:
    x = weights(3)

    def run(x: aj.Tensor) -> Any:
        y, _ = aj.scan(lambda h, u: (h.mul_(2).add_(u), h.sum()), x * 1, x)
        return derivatives((y**3).sum(), x)

    agree(run, x)


def test_gradients_taken_inside_the_body() -> None:
    x = weights(3)

    def step(q: aj.Tensor, size: aj.Tensor) -> Any:
        inner = q.detach().requires_grad_()
        energy = (inner**4).sum()
        (force,) = aj.autograd.grad(energy, inner)
        return q - 0.1 * size * force, energy.detach()

    agree(lambda x: aj.scan(step, x, aj.arange(3, dtype=F)), x)


def test_a_generator_moves_on_from_step_to_step() -> None:
    def run(x: aj.Tensor) -> Any:
        return aj.scan(lambda h, u: (h + aj.rand(3) * u, aj.rand(2)), x, aj.ones(4, 3))

    compiled = aj.jit(run)
    aj.manual_seed(3)
    expected = [run(aj.zeros(3)) for _ in range(2)]
    aj.manual_seed(3)
    for h, ys in expected:
        found = compiled(aj.zeros(3))
        np.testing.assert_array_equal(found[1].numpy(), ys.numpy())
        np.testing.assert_allclose(found[0].numpy(), h.numpy(), rtol=1e-6)
    assert len(np.unique(expected[0][1].numpy())) == 8


def test_running_statistics_are_state() -> None:
    layers = [aj.nn.BatchNorm1d(3).double() for _ in range(2)]
    xs = weights(4, 5, 3).detach()

    def run(layer: Any, xs: aj.Tensor) -> Any:
        return aj.scan(lambda h, u: (h + layer(u).sum(0), layer(u)), aj.zeros(3, dtype=F), xs)

    expected = run(layers[0], xs)
    found = aj.jit(lambda xs: run(layers[1], xs))(xs)
    np.testing.assert_allclose(found[1].detach().numpy(), expected[1].detach().numpy(), rtol=1e-9)
    for name, value in layers[0].state_dict().items():
        np.testing.assert_allclose(layers[1].state_dict()[name].numpy(), value.numpy(), rtol=1e-12)


@pytest.mark.parametrize("transform", ["vmap", "grad", "vmap grad", "grad vmap", "jvp", "hessian", "vmap hessian"])
def test_function_transforms(transform: str) -> None:
    w = weights(3, 3).detach()

    def loss(x: aj.Tensor) -> aj.Tensor:
        h, ys = aj.scan(lambda h, u: (aj.tanh(h @ w) + u * h.detach(), h.sum()), x, x)
        return (h**2).sum() + ys.sum()

    batch = weights(4, 3, seed=7).detach()
    from autojit.func import grad, hessian, jvp, vmap

    functions = {
        "vmap": vmap(loss),
        "grad": lambda b: grad(loss)(b[0]),
        "vmap grad": vmap(grad(loss)),
        "grad vmap": grad(lambda b: vmap(loss)(b).sum()),
        "jvp": lambda b: jvp(loss, (b[0],), (b[1],)),
        "hessian": lambda b: hessian(loss)(b[0]),
        "vmap hessian": vmap(hessian(loss)),
    }
    agree(functions[transform], batch)


def test_a_batch_is_a_loop_over_its_elements() -> None:
    w, batch = weights(3, 3).detach(), weights(4, 3, seed=7).detach()

    def gradient(x: aj.Tensor) -> Any:
        return aj.func.grad(lambda x: aj.scan(lambda h, u: ((h @ w).sin() * h.detach() + u, ()), x, x)[0].sum())(x)

    expected = aj.stack([gradient(x) for x in batch])
    np.testing.assert_allclose(aj.vmap(gradient)(batch).numpy(), expected.numpy(), rtol=1e-12)
    np.testing.assert_allclose(aj.jit(aj.vmap(gradient))(batch).numpy(), expected.numpy(), rtol=1e-12)


def test_nested_loops_and_branches() -> None:
    x, w = weights(3), weights(3, 3, seed=1)

    def run(x: aj.Tensor) -> Any:
        def outer(h: aj.Tensor, u: aj.Tensor) -> Any:
            a, ys = aj.scan(lambda a, b: (a * 0.5 + aj.sin(b * u), a), h, x.expand(2, 3) * h)
            a = aj.cond(a.sum() > 0, lambda a: a * 2, lambda a: a.cos(), (a,))
            (a,) = aj.while_loop(lambda a: a.abs().sum() > 1, lambda a: (a * 0.6 * w[0].cos(),), (a,))
            return a, ys.sum()

        h, ys = aj.scan(outer, x, aj.arange(3, dtype=F) + 1)
        return derivatives((h**2).sum() + (ys**2).sum(), x, w)

    agree(run, x)


def test_results_are_differentiated_outside_the_step() -> None:
    x = weights(3)
    loss = aj.jit(lambda x: aj.scan(lambda h, u: (h * u.sin() + x, ()), x, x)[0].square().sum())
    (found,) = aj.autograd.grad(loss(x), x, create_graph=True)
    (again,) = aj.autograd.grad(found.sum(), x)
    expected = aj.scan(lambda h, u: (h * u.sin() + x, ()), x, x)[0].square().sum()
    (first,) = aj.autograd.grad(expected, x, create_graph=True)
    np.testing.assert_allclose(found.detach().numpy(), first.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(again.numpy(), aj.autograd.grad(first.sum(), x)[0].numpy(), rtol=1e-12)


def test_an_op_that_is_called_back_runs_in_every_step() -> None:
    x = weights(3, 3)
    eye = 3 * aj.eye(3, dtype=F)

    def run(x: aj.Tensor) -> Any:
        h, ys = aj.scan(lambda h, u: (aj.linalg.pinv(h + eye) @ h + u, aj.linalg.det(h)), x, aj.arange(4, dtype=F))
        return derivatives((h**2).sum() + ys.sin().sum(), x)

    compiled = aj.jit(run)
    for a, b in zip(compiled(x), run(x), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-8)
    assert compiled.stats()["fallbacks"] > 0
    assert "pseudo_inverse" in compiled.explain()


def test_errors_in_a_step_leave_the_loop() -> None:
    x = aj.arange(9, dtype=F)
    pick = aj.jit(lambda places: aj.scan(lambda c, k: (c + x[k], c), aj.zeros((), dtype=F), places)[0])
    assert pick(aj.tensor([0, 3, 5])).item() == 8
    with pytest.raises(IndexError, match="out of bounds"):
        pick(aj.tensor([0, 30, 5]))
    assert pick(aj.tensor([0, 3, 6])).item() == 9


def test_the_graph_does_not_grow_with_the_number_of_steps() -> None:
    def run(xs: aj.Tensor) -> Any:
        h, _ = aj.scan(lambda h, x: (h.sin() + x, ()), xs[0], xs)
        return aj.autograd.grad(h.sum(), xs)

    sizes = []
    for steps in (3, 300):
        compiled = aj.jit(run)
        compiled(aj.ones(steps, 2, requires_grad=True))
        sizes.append(len(compiled.newest.compiled.graph))
    assert sizes[0] == sizes[1]


def test_other_numbers_of_steps_use_the_same_code() -> None:
    w = weights(3, 3)

    def run(h: aj.Tensor, xs: aj.Tensor) -> Any:
        h, ys = aj.scan(lambda h, x: ((h @ w + x).tanh(), h.sin()), h, xs)
        loss = (h**2).sum() + (ys**2).sum()
        return loss, aj.autograd.grad(loss, w)

    compiled = aj.jit(run)
    for steps, batch in ((4, 2), (5, 2), (6, 2), (19, 2), (7, 3), (8, 5), (30, 6)):
        h, xs = weights(batch, 3).detach(), weights(steps, batch, 3).detach()
        for a, b in zip(leaves(compiled(h, xs)), leaves(run(h, xs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    assert compiled.stats()["captures"] <= 3


@pytest.mark.parametrize("is_compiled", [False, True])
def test_bad_steps_name_the_leaf(is_compiled: bool) -> None:
    def run(step: Any, init: Any, xs: Any) -> Any:
        return aj.jit(lambda xs: aj.scan(step, init, xs))(xs) if is_compiled else aj.scan(step, init, xs)

    x = aj.ones(3, 3)
    with pytest.raises(RuntimeError, match=r"carry\['h'\] after a step must have the shape"):
        run(lambda c, u: ({"h": c["h"][:2]}, u), {"h": x}, x)
    with pytest.raises(RuntimeError, match="carry after a step must have the dtype"):
        run(lambda c, u: (c.double(), u), x, x)
    with pytest.raises(RuntimeError, match="must have the structure of init"):
        run(lambda c, u: ((c, c), u), x, x)
    with pytest.raises(RuntimeError, match="must return a pair"):
        run(lambda c, u: c + u, x, x)
    with pytest.raises(RuntimeError, match="scan dimension > 0"):
        run(lambda c, u: (c, u), x, x[:0])
    with pytest.raises(RuntimeError, match="same extent along dim"):
        aj.scan(lambda c, u: (c, u), x, (x, x[:2]))


def test_what_no_op_does_in_a_body_is_done_turn_by_turn() -> None:
    w = aj.ones(3, requires_grad=True)

    def decide(x: aj.Tensor) -> Any:
        return aj.scan(lambda c, u: ((c if c.sum() > 0 else u), u), x[0], x)[0]

    def write(x: aj.Tensor) -> Any:
        outside = x[0] * 2
        return aj.scan(lambda c, u: (c + outside.add_(1), u), x[0], x)[0]

    def accumulate(x: aj.Tensor) -> Any:
        w.grad = None
        aj.scan(lambda c, u: ((w * u).sum().backward() or c, u), x[0], x)
        return w.grad

    for step in (decide, write, accumulate):
        compiled = aj.jit(step)
        for x in (aj.ones(3, 3), -aj.ones(3, 3)):
            assert compiled(x).tolist() == step(x).tolist()
    outside = aj.zeros(3)
    with pytest.raises(RuntimeError, match="export: Python decides on a tensor"):
        aj.export.export(lambda x: aj.scan(lambda c, u: ((c if c.sum() > 0 else u), u), x[0], x), (outside[None],))


def test_the_recorded_graph_reads_back() -> None:
    w, xs = weights(3, 3), weights(4, 3)

    def run(xs: aj.Tensor) -> Any:
        h, _ = aj.scan(lambda h, x: ((h @ w + x).tanh(), ()), xs[0], xs)
        return aj.autograd.grad(h.sum(), w)[0]

    step = aj.jit(run)
    expected = step(xs)
    graph = parse_graph(step.show("graph"))
    (found,) = evaluate(
        graph, [x.detach().numpy() for x in ((xs, w) if graph.inputs[0].type.shape == (4, 3) else (w, xs))]
    )
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)
    again = aj.jit(lambda xs: aj.scan(lambda h, x: ((h @ w + x).tanh(), ()), xs[0], xs)[0])
    again(xs)
    forward = parse_graph(again.show("graph"))
    bars = [np.ones(3)]
    arrays = [x.detach().numpy() for x in ((xs, w) if forward.inputs[0].type.shape == (4, 3) else (w, xs))]
    pulled = evaluate(adjoint(forward), [*arrays, *bars])
    place = 1 if forward.inputs[0].type.shape == (4, 3) else 0
    np.testing.assert_allclose(pulled[place], expected.numpy(), rtol=1e-12)


def test_torchs_module_has_the_functions() -> None:
    from autojit._higher_order_ops import associative_scan, scan, while_loop

    assert (associative_scan, scan, while_loop) == (aj.associative_scan, aj.scan, aj.while_loop)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_capture_serves_every_length(reverse: bool) -> None:
    w, v = weights(3, 3), weights(3, 3, seed=1)

    def run(xs: aj.Tensor, ys: aj.Tensor) -> Any:
        def body(h: aj.Tensor, given: tuple[aj.Tensor, aj.Tensor]) -> Any:
            x, y = given
            h = (h @ w.T + x @ v.sin()).tanh()
            return h, (h * y, h.sum())

        h, results = aj.scan(body, aj.zeros(2, 3, dtype=F), (xs, ys), reverse=reverse)
        loss = (h**3).sum() + sum((r**2).sum() for r in results)
        slopes = aj.autograd.grad(loss, (w, v, xs), create_graph=True)
        return loss, *aj.autograd.grad(sum((s**2).sum() for s in slopes), (w, v, xs))

    step = aj.jit(run)
    for length in (5, 8, 2, 31):
        xs, ys = weights(length, 2, 3), weights(length, 2, 3, seed=2)
        for found, wanted in zip(step(xs, ys), run(xs, ys), strict=True):
            np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert (step.stats()["captures"], step.stats()["fallbacks"]) == (2, 0), step.explain()
