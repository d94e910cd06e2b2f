"""Programs that the fuzzer found to differ, shrunk: eager and compiled runs agree on each, with passes and without."""

from __future__ import annotations

import pytest

from autojit.testing.fuzz.running import load
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.verdicts import judge

HEAD = """
import array, collections, contextvars, functools, types
import numpy as np
import autojit as aj
from autojit import nn
from autojit.nn import functional as F
from autojit.testing.fuzz import filled, sample
def program(jit, see):"""
FOUND = {
    "a number that was made in inference mode is an operand of a compiled step (seed 420132)": """
    held = [sample(1)]
    w = sample(1, 3).requires_grad_()
    @jit
    def step(x):
        y = (x - held[0] + w).sum()
        held[0] = x.sum().detach()
        return y
    with aj.inference_mode():
        see.call(step, sample(2, 3))
    r = see.call(step, sample(3, 3))
    see.grads(r, w, order=1)
""",
    "a transposed result keeps its strides (seed 1007)": """
    @jit
    def step(x, y):
        return y.mT, (x + 1).T
    see.call(step, sample(1, 7, 4), sample(5, 7, 4))
    see.call(step, sample(1, 3, 4), sample(5, 3, 4))
""",
    "contiguous of a transposed argument is a copy (seed 1001)": """
    @jit
    def step(x):
        x.contiguous().mul_(3)
        x.reshape(-1).add_(1)
    see.call(step, sample(1, 4, 5).T)
""",
    "memory of a result that is a view of an argument (seed 60006)": """
    @jit
    def step(x):
        return x[:2], x.T, x.contiguous()
    x = sample(1, 3, 4)
    r = see.call(step, x)
    r[0].add_(1)
    see.call(step, x)
""",
    "the state of an optimiser is cleared (seed 30060)": """
    w = sample(1, 3).requires_grad_()
    opt = aj.optim.Adagrad([w], lr=0.1)
    @jit
    def inner(x):
        opt.zero_grad()
        (w * x).sin().sum().backward()
        opt.step()
    step = jit(lambda x: inner(x))
    see.watch(w=lambda: w, opt=lambda: opt)
    see.call(step, sample(2, 3))
    see.call(step, sample(3, 3))
    opt.state.clear()
    see.call(step, sample(4, 3))
""",
    "a transform runs in inference mode (seed 30111)": """
    step = jit(lambda x: aj.func.vmap(aj.func.grad(lambda z: z.tanh().pow(2).sum()))(x))
    with aj.inference_mode():
        see.call(step, sample(1, 2, 4))
""",
    "a list is appended to while a transform reads its length (seed 40040)": """
    items = [1.0, 1.5]
    @jit
    def step(x):
        y = aj.func.vmap(lambda z: z * float(len(items)))(x)
        items.append(1.0)
        return y
    see.watch(items=lambda: items)
    see.call(step, sample(1, 2, 4))
    see.call(step, sample(1, 2, 4))
""",
    "a jitted module is a module (seed 70040)": """
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = jit(nn.Linear(4, 4))
        def forward(self, z):
            return self.part(z)
    net = filled(Outer(), 5)
    see.watch(net=lambda: net)
    see.call(jit(net), sample(1, 3, 4))
""",
    "a step that was compiled for a transposed argument asks its layout (seed 1023)": """
    @jit
    def step(x, y):
        return x.erf() if y.data_ptr() == y.view(y.shape).data_ptr() and y.is_contiguous() else x.sign()
    see.call(step, sample(1, 3, 4), sample(1, 6, 4)[::2])
    see.call(step, sample(1, 3, 4), sample(1, 3, 4))
""",
    "an update through .data moves no version (seed 1010)": """
    @jit
    def step(x):
        x.data.add_(0.5)
    see.call(step, sample(1, 9, 4))
""",
    "an argument is transposed in place (seed 50003)": """
    @jit
    def step(x, y):
        y.transpose_(0, -1)
        return y.sum(0)
    see.call(step, sample(1, 5, 4), sample(2, 5, 4))
""",
    "a gradient that is created with a graph can be differentiated (seed 50052)": """
    @jit
    def step(x):
        (x.tanh() ** 2).mean().backward(create_graph=True)
    see.call(step, sample(1, 7, 4).requires_grad_())
""",
    "an item appended to a deque is a number (seed 1004)": """
    queue = collections.deque([1.0, 3.0], maxlen=3)
    @jit
    def step(x):
        queue.append(x.sum().item())
    see.watch(queue=lambda: queue)
    see.call(step, sample(1, 4))
    see.call(step, sample(2, 4))
""",
    "a hook's list grows by one entry a call (seed 30000)": """
    seen, w = [], sample(1, 3).requires_grad_()
    w.register_hook(lambda g: (seen.append(g.detach().sum().item()), g * 0.5)[1])
    @jit
    def step(x):
        (w * x).sum().backward()
    see.watch(seen=lambda: seen, w=lambda: w)
    see.call(step, sample(2, 3))
    see.call(step, sample(3, 3))
""",
    "an iterator goes on at every call (seed 30012)": """
    stream = iter([1.0, 2.0, 3.0])
    step = jit(lambda x: x + next(stream))
    for k in range(3):
        see.call(step, sample(k, 3))
""",
    "a generator goes on at every call (seed 30032)": """
    def count():
        v = 0.5
        while True:
            v += 1
            yield v
    ticks = count()
    step = jit(lambda x: x * next(ticks))
    for k in range(3):
        see.call(step, sample(k, 3))
""",
    "a sum over a deque follows it (seed 30017)": """
    queue = collections.deque([1.0, 0.5], maxlen=3)
    step = jit(lambda x: x * sum(queue))
    see.call(step, sample(1, 3))
    queue.popleft()
    see.call(step, sample(1, 3))
""",
    "whether algorithms are deterministic is asked anew (seed 30061)": """
    step = jit(lambda x: x - float(aj.are_deterministic_algorithms_enabled()))
    see.call(step, sample(1, 3))
    aj.use_deterministic_algorithms(True)
    see.call(step, sample(1, 3))
""",
    "a class's forward is replaced (seed 30086)": """
    class Net(nn.Module):
        def forward(self, z):
            return z + 1
    net = Net()
    step = jit(lambda x: net(x))
    see.call(step, sample(1, 3))
    Net.forward = lambda self, z: z * 0.5
    see.call(step, sample(1, 3))
""",
    "print prints values at every call (seed 30062)": """
    @jit
    def step(x):
        print(x.sum())
        print(f"loss {float(x.sum()):.3f}")
        return x
    see.call(step, sample(1, 3))
    see.call(step, sample(2, 3))
""",
    "a context variable is set (seed 70015)": """
    variable = contextvars.ContextVar("variable", default=1.5)
    step = jit(lambda x: x + variable.get())
    see.call(step, sample(1, 3))
    variable.set(0.5)
    see.call(step, sample(1, 3))
""",
    "a function's attribute changes (seed 70007)": """
    def tagged():
        return tagged.value
    tagged.value = 0.5
    step = jit(lambda x: x * tagged())
    see.call(step, sample(1, 3))
    tagged.value = 1.5
    see.call(step, sample(1, 3))
""",
    "a function under no_grad counts an attribute (seed 60016)": """
    cfg = types.SimpleNamespace(scale=2.0)
    @jit
    @aj.no_grad()
    def step(x):
        cfg.scale = cfg.scale + 1
        return x * cfg.scale
    see.watch(cfg=lambda: cfg)
    see.call(step, sample(1, 3))
    see.call(step, sample(1, 3))
""",
    "elements of array.array (seed 50040)": """
    values = array.array("d", [1.0, 2.0])
    step = jit(lambda x: x + sum(values))
    see.call(step, sample(1, 3))
    values[1] = 3.0
    see.call(step, sample(1, 3))
""",
    "a part of a masked array (seed 70006)": """
    values = np.array([1.0, 0.5, 2.0])
    step = jit(lambda x: x - values[values > 1].sum())
    see.call(step, sample(1, 3))
    values[1:] = -0.75
    see.call(step, sample(1, 3))
""",
    "what backward has used up still requires a gradient (seed 1040)": """
    w = sample(1, 3).requires_grad_()
    @jit
    def step(x):
        t = (w * x).tanh()
        t.sum().backward()
        return t
    see.call(step, sample(2, 3))
""",
    "a failed call leaves the list of a hook (seed 300136)": """
    w, kept, seen = sample(1, 4).requires_grad_(), np.array([1.0, 2.0]), []
    w.register_hook(lambda g: (seen.append(g.detach().sum().item()), g * 0.5)[1])
    @jit
    def step(x):
        (w.tanh() ** 2).mean().backward()
        seen.append(1.0)
        return x + 1
    see.watch(seen=lambda: seen)
    see.call(step, sample(1, 4))
    see.call(step, sample(1, 4))
""",
    "a part of a tensor outside is returned without history (seed 300084)": """
    state = sample(1, 4)
    @jit
    def step(x):
        return {"a": x.detach(), "b": [state[..., ::2].detach(), state.detach()]}
    see.watch(state=lambda: state)
    r = see.call(step, sample(1, 5))
    r["b"][0].add_(1)
    see.call(step, sample(1, 5))
""",
    "a leaf that the step has made is returned (seed 300096)": """
    @jit
    def step(x):
        y = x.detach().requires_grad_()
        return y, aj.autograd.grad((y.relu() * y).sum(), y, create_graph=True)[0], y * 2
    see.call(step, sample(1, 5))
    see.call(step, sample(2, 5))
""",
    "addresses tell which tensors share memory (seeds 300006, 300222)": """
    state = sample(1, 3, 4)
    @jit
    def step(x):
        t = x * 1
        pairs = (state, state.view(4, 3)), (t, t.view(t.shape)), (x, x[1:]), (t, x)
        return [t + float(a.data_ptr() == b.data_ptr()) for a, b in pairs]
    see.call(step, sample(1, 4, 3))
    see.call(step, sample(1, 3, 4).T)
""",
    "a gradient with a history lies as its leaf does (seed 300098)": """
    w = sample(1, 4, 3).requires_grad_()
    @jit
    def step(x):
        w.grad = None
        (x @ w.T).tanh().sum().backward(create_graph=True)
    see.watch(w=lambda: w)
    see.call(step, sample(2, 5, 3))
""",
    "an argument is copied onto itself (seed 200013)": """
    w = sample(1, 3)
    @jit
    def step(x):
        w.copy_(w)
        x.copy_(x)
    see.watch(w=lambda: w)
    see.call(step, sample(2, 3))
    see.call(step, sample(2, 3))
""",
    "an error of a result that nothing reads is raised (seed 60034)": """
    index, w = aj.tensor([0, 2]), sample(1, 4, 4)
    @jit
    def step(x):
        unused = F.embedding(index, w).sum()
        return x
    see.call(step, sample(2, 3))
    index[1] = 9
    see.call(step, sample(2, 3))
""",
    "unique of a parameter is returned (seed 60037)": """
    w = sample(1, 3).requires_grad_()
    step = jit(lambda x: ((x * w).sin(), w.unique()))
    see.watch(w=lambda: w)
    for n in (1, 3):
        r = see.call(step, sample(2, n))
        see.grads(r[0], w, order=1)
""",
    "zeros of a derivative have the sign of eager mode (seed 200933)": """
    f = aj.func.vmap(aj.func.grad(lambda z: (z.sin() * 0.0).pow(2).sum()))
    see.call(jit(lambda x: aj.atan2(f(x), x)), sample(1, 4))
""",
    "a reduction over an axis of extent 1 (seed 200560)": """
    see.call(jit(lambda x: (x * 1).unsqueeze(-1).softmax(-1) * 1), sample(1, 3, 4))
""",
    "a remembered result is forgotten and computed anew (seed 200651)": """
    scale = [2.0]
    @functools.lru_cache
    def cached(n):
        return n * scale[0]
    step = jit(lambda x: x * cached(2))
    see.call(step, sample(1, 3))
    see.call(step, sample(1, 4))
    scale[0] = 0.5
    see.call(step, sample(1, 4))
    cached.cache_clear()
    see.call(step, sample(1, 3))
    see.call(step, sample(1, 4))
""",
    "results of control flow lie as in eager mode (seeds 300195, 200648)": """
    @jit
    def step(x):
        t = x * 1
        a = aj.cond(t.sum() > 0, lambda z: z.tanh() * 0.5, lambda z: z.abs() * 1.0, (t,))
        b = aj.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, (z * 0.5).sin()), (aj.tensor(0), t))[1]
        c = aj.scan(lambda c, z: (c * 0.5, c.sum()), t, aj.zeros(3))
        return a, b, c
    see.call(step, sample(1, 5, 4).T)
    see.call(step, sample(1, 4, 5))
""",
    "a scan of one step (seed 30119)": """
    w = sample(1, 1, 4).requires_grad_()
    step = jit(lambda x: aj.scan(lambda c, z: (c + z, c.sin()), x, w))
    see.call(step, sample(1, 4))
""",
    "a module of the library gets another forward (seeds 200890, 200911)": """
    net = filled(nn.LayerNorm(4), 5)
    step = jit(lambda x: net(x))
    see.call(step, sample(1, 3, 4))
    net.forward = lambda z: z * 3.0
    see.call(step, sample(1, 3, 4))
    del net.forward
    see.call(step, sample(1, 3, 4))
""",
    "where an argument begins in its storage (seed 302021)": """
    base = sample(1, 16, 4)
    step = jit(lambda x: x.clone() if x.storage_offset() > 4 else x ** 3)
    see.call(step, base[1:6])
    see.call(step, base[2:7])
    see.call(step, base[2:7].clone())
""",
    "a view of a detached argument (seed 302054)": """
    @jit
    def step(x):
        t = x.detach()
        return t.view(*t.shape), t[1:]
    see.call(step, sample(1, 6, 4)[::2])
""",
    "a printed result shows the name of its node (seed 302087)": """
    w = sample(1, 3).requires_grad_()
    inner = jit(lambda x: (w * x).tanh())
    @jit
    def step(x):
        print(inner(x).sum())
    see.call(step, sample(1, 3))
    see.call(step, sample(2, 3))
""",
    "a gradient through a compiled step is expanded (seed 302244)": """
    w = sample(1, 4, 4).requires_grad_()
    step = jit(lambda x: (x, w.sum(0)))
    x = sample(1, 3)
    see.grads(see.call(step, x), w, order=1)
    y = sample(2, 3, 4).requires_grad_()
    see.grads(see.call(jit(lambda x: (x * 2).T), y), y, order=1)
""",
    "a result of what was changed in place keeps no other from its derivative (seed 400254)": """
    w = sample(1, 4).requires_grad_()
    @jit
    def step(x):
        y = w * x
        z = (y * y).sum()
        y.add_(1)
        return (w.sin() * x).sum(), z
    see.watch(w=lambda: w)
    for n in (1, 3):
        r = see.call(step, sample(2, n, 4))
        see.grads(r[0], w, order=1)
""",
    "gradients whose history the step has spoilt, for other sizes (seed 303181)": """
    net = filled(nn.Linear(4, 4), 5)
    opt = aj.optim.Adam(net.parameters(), lr=0.05)
    @jit
    def step(x):
        opt.zero_grad()
        (net(x).tanh() ** 2).mean().backward(create_graph=True)
        opt.step()
    see.watch(net=lambda: net)
    see.call(step, sample(1, 5, 4).requires_grad_())
    see.call(step, sample(1, 2, 4).requires_grad_())
""",
    "a view is returned whose base was transposed in place after it was taken": """
    @jit
    def step(x):
        t = x.T * 1
        v, w = t.narrow(-1, 0, 2), t[:1]
        t.t_()
        return x, v, w, t
    see.call(step, sample(1, 3, 4))
    see.call(step, sample(1, 4, 3).T)
""",
    "a view that was written to lies as before (seed 306099)": """
    @jit
    def step(x):
        t = x * 1
        v = t.unsqueeze(0)
        v.zero_()
        return v * 1
    see.call(step, sample(1, 4, 3).T)
""",
    "an error of backward after an operand of a composite was changed (seed 440059)": """
    net = filled(nn.LayerNorm(4), 5)
    @jit
    def step(x):
        y = net(x)
        x[..., ::2] += 3.0
        (y.tanh() ** 2).mean().backward()
    see.call(step, aj.from_numpy(sample(1, 3, 4).numpy()))
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_program_that_differed_agrees(name: str) -> None:
    verdict = judge(load(HEAD + FOUND[name], name), "float64", passes_off=True)
    assert verdict.kind == ("eager error" if name.startswith("an error") else "agrees"), report(verdict)
