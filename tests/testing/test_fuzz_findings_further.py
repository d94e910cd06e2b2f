"""More programs that the fuzzer found to differ: values, modes, errors, what spoils a history; and one of rounding."""

from __future__ import annotations

import pytest

from autojit.testing.fuzz.running import load
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.verdicts import judge
from tests.testing.test_fuzz_findings import HEAD

FOUND = {
    "an error of a gradient that an earlier call has made in inference mode (seed 701469)": """
    w = sample(1, 4, 4).requires_grad_()
    @jit
    def step():
        loss = (w ** 2).sum()
        if loss.requires_grad:
            loss.backward()
        w.grad = w.detach() * 2
    with aj.inference_mode():
        see.call(step)
    see.call(step)
""",
    "an error of a call that runs line by line, for its draws (seed 700069)": """
    rng = np.random.default_rng(7)
    net = filled(nn.BatchNorm1d(4), 45)
    @jit
    def step(x):
        net(x)
        return x * float(rng.integers(5)) + float(rng.integers(5))
    see.watch(net=lambda: net)
    see.call(step, sample(1, 3, 4))
    see.call(step, sample(1, 1, 4))
""",
    "a scan of another length, in which whole numbers are divided (seed 700260)": """
    whole = aj.tensor([7, -3, 2])
    @jit
    def step(x):
        return aj.scan(lambda c, z: (c + z * (whole % whole[2]).sum(), c.sin()), x[0] * 0, x)[1] * 1
    for n in (5, 3):
        see.call(step, sample(1, n, 4).requires_grad_())
""",
    "an error of a gradient that was made in inference mode, changed outside it (seed 306300)": """
    w = sample(1, 4, 4).requires_grad_()
    @jit
    @aj.inference_mode()
    def step():
        w.grad = w.detach() * 2
    see.call(step)
    see.call(lambda: nn.utils.clip_grad_norm_([w], 0.5))
""",
    "an error of a gradient that was made in inference mode, cleared by the next step (seed 302309)": """
    w = sample(1, 4, 4).requires_grad_()
    opt = aj.optim.RAdam([w], lr=0.05)
    @jit
    def step(x):
        opt.zero_grad(set_to_none=False)
        w.grad = w.detach() * 2
    with aj.inference_mode():
        see.call(step, sample(1, 4, 3).T)
    see.call(step, sample(1, 3, 4))
""",
    "an error of an operand of a composite that the step has changed (seed 302046)": """
    net = filled(nn.LayerNorm(4), 44)
    @jit
    def step(x, y):
        z = net(x)
        y.copy_(z.detach())
        (z.tanh() ** 2).mean().backward(create_graph=True)
    x = sample(1, 3, 4)
    see.call(step, x, x)
""",
    "an error of a step that transposes an argument after a change of it (seed 420205)": """
    @jit
    def step(y):
        with aj.no_grad():
            y[..., -1].add_(1.5)
            y.transpose_(0, -1)
        return y * 1.0, y
    y = sample(4, 3, 4).requires_grad_()
    r = see.call(step, y)
    see.call(lambda: y.reshape(2, 5))
""",
    "an error of a gradient for a tensor that was transposed unrecorded (seed 420214)": """
    net = filled(nn.BatchNorm1d(4), 43)
    @jit
    def step(x):
        t = net(x)
        with aj.no_grad():
            t.transpose_(0, -1)
        (t.tanh() ** 2).mean().backward()
    see.call(step, sample(1, 3, 4))
""",
    "an error of a scan that nobody reads (seed 302115)": """
    index, state = aj.tensor([0, -1, 1]), sample(1, 4)
    @jit
    def step(x):
        aj.scan(lambda c, z: (c + z * state.gather(0, index).sum(), c.sin()), aj.zeros(x.shape[1:], dtype=x.dtype), x)
    see.call(step, sample(1, 3, 4))
""",
    "memory that a loop reads and only adds is changed before backward (seed 303049)": """
    v, w = sample(43, 3), sample(72, 4, 4).requires_grad_()
    @jit
    def step(x):
        t = aj.while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, (z * 0.5 + v[0]).sin()), (aj.tensor(0), w))[1]
        v[1:].add_(t.sum().detach())
        return t * x
    see.watch(v=lambda: v, w=lambda: w)
    for k in range(2):
        r = see.call(step, sample(7 + k, 4))
        see.grads(r, w, order=2)
""",
    "a number that a scan takes from state is another one later (seed 440067)": """
    state, w = sample(42), sample(72, 4, 4).requires_grad_()
    @jit
    def step(x):
        t = aj.scan(lambda c, z: (c + z * state.item(), c.sin()), aj.zeros(4, dtype=aj.float64), x @ w)[0]
        state.copy_(x.sum())
        (t.tanh() ** 2).mean().backward()
        return t.detach()
    see.watch(state=lambda: state, w=lambda: w)
    for k in range(3):
        see.call(step, sample(6 + k, 3, 4))
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_program_that_differed_agrees(name: str) -> None:
    verdict = judge(load(HEAD + FOUND[name], name), "float64", passes_off=True)
    assert verdict.kind == ("eager error" if name.startswith("an error") else "agrees"), report(verdict)


ROUNDED = """
    net = filled(nn.Linear(4, 4, bias=False), 41)
    opt = aj.optim.Adam(net.parameters(), lr=0.05, amsgrad=True)
    @jit
    def step(x):
        t = (net(x) * 3).tanh()
        aj.func.jvp(lambda z: (z.square() * 1.5).pow(2), (t,), (aj.ones_like(t),))[1].tanh().pow(2).mean().backward()
        WRONG
        opt.step()
    see.watch(net=lambda: net)
    see.call(step, sample(1, 3, 4))
"""


def test_rounding_in_the_middle_of_a_program_is_told_from_a_wrong_value() -> None:
    """Gradients of 1e-9, left over from numbers around 1, are what Adam divides by their own size (seed 304179)."""
    program = load(HEAD + ROUNDED.replace("WRONG", "pass"), "rounded")
    assert judge(program, "float64").kind in ("rounding", "agrees")
    for wrong in ("1e-6", "1e-9"):
        change = f"net.weight.grad.mul_(1 + ({wrong} if jit is aj.jit else 0) * sample(5, 4, 4))"
        verdict = judge(load(HEAD + ROUNDED.replace("WRONG", change), "wrong"), "float64")
        assert verdict.is_finding, report(verdict)
