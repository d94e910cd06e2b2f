"""``Body``: writes the statements of a step, one op to a line, over a scope of tensors whose shapes it knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from autojit.testing.fuzz import tables
from autojit.testing.fuzz.program import Block, Node
from autojit.testing.fuzz.tables import Shape

CONSTANTS = ("0.5", "1.5", "2.0", "-0.75", "3.0")


class Variable(NamedTuple):
    """A floating-point tensor that statements may use."""

    name: str
    shape: Shape
    is_fresh: bool = False  # made by the step itself, shared with nothing the caller holds
    is_counted: bool = False  # its size depends on values


class Body:
    """Appends statements to ``nodes``; ``read_number`` gives an expression for a number of the environment."""

    def __init__(
        self, rng: random.Random, scope: Sequence[Variable], read_number: Callable[[], str], dtype: str
    ) -> None:
        self.rng = rng
        self.scope = list(scope)
        self.read_number = read_number
        self.dtype = dtype
        self.nodes: list[Node] = []
        self.numbers: list[str] = []
        self.taken = 0
        self.is_differentiable = True

    # -- choices

    def constant(self) -> str:
        """A small number."""
        return self.rng.choice(CONSTANTS)

    def pick(self, *, counted: bool = False) -> Variable:
        """A tensor, rather a late one."""
        known = [v for v in self.scope if counted or not v.is_counted]
        return known[-1 - min(int(self.rng.expovariate(0.5)), len(known) - 1)]

    def like(self, shape: Shape) -> str:
        """An operand of a shape: another tensor of it, or something that broadcasts to it."""
        known = [v.name for v in self.scope if v.shape == shape and not v.is_counted]
        if known and self.rng.random() < 0.8:
            return self.rng.choice(known)
        if all(isinstance(n, int) for n in shape):
            sizes = "".join(f", {n}" for n in shape)
            return f"sample({self.rng.randint(20, 30)}{sizes}, dtype={self.dtype})"
        return f"({self.rng.choice(known)} * 0.5)" if known else f"aj.tensor({self.constant()}, dtype={self.dtype})"

    def name(self) -> str:
        """A new name."""
        self.taken += 1
        return f"t{self.taken}"

    def fill(self, template: str, x: str, y: str = "") -> str:
        """A template with its operands."""
        return template.format(x=x, y=y, k=self.constant(), s=self.rng.choice((1, 2, 4, 6)), d=self.dtype)

    def made(self, text: str, shape: Shape, *, fresh: bool = False, counted: bool = False) -> Variable:
        """Assign an expression to a new name."""
        variable = Variable(self.name(), shape, fresh, counted)
        self.nodes.append(f"{variable.name} = {text}")
        self.scope.append(variable)
        return variable

    # -- statements

    def write(self, count: int) -> None:
        """Append ``count`` random statements."""
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.unary, 5), (self.shaped, 4), (self.pair, 4), (self.number, 2), (self.environment, 4), (self.branch, 3),
            (self.write_fresh, 3), (self.write_anywhere, 2), (self.counted, 1), (self.loop, 1), (self.matmul, 2), (self.control, 2),
            (self.attempt, 1), (self.transform, 2), (self.gradient, 1), (self.cast, 1),
        ]  # fmt: skip
        for _ in range(count):
            self.rng.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()

    def unary(self) -> None:
        """An op that keeps the shape."""
        x = self.pick(counted=True)
        table = tables.SAME if not x.shape or x.is_counted or self.rng.random() < 0.5 else tables.ALONG
        self.made(self.fill(self.rng.choice(table), x.name), x.shape, counted=x.is_counted)

    def shaped(self) -> None:
        """An op that changes the shape."""
        x = self.pick()
        op = self.rng.choice([op for op in tables.SHAPED if op.applies(x.shape)])
        self.made(self.fill(op.text, x.name), op.result(x.shape))

    def pair(self) -> None:
        """An op of two tensors."""
        x = self.pick()
        self.made(self.fill(self.rng.choice(tables.PAIRS), x.name, self.like(x.shape)), x.shape)

    def matmul(self) -> None:
        """A product with a matrix."""
        x = self.pick()
        if not x.shape or not isinstance(x.shape[-1], int):
            return self.unary()
        width = self.rng.choice((3, 4))
        right = f"sample({self.rng.randint(31, 35)}, {x.shape[-1]}, {width}, dtype={self.dtype})"
        self.made(f"{x.name} @ {right}", (*x.shape[:-1], width))
        return None

    def number(self) -> None:
        """A Python number of a tensor, used in arithmetic."""
        x, y = self.pick(), self.pick()
        name = f"n{len(self.numbers)}"
        self.nodes.append(f"{name} = {self.fill(self.rng.choice(tables.NUMBERS), x.name)}")
        self.numbers.append(name)
        self.made(f"{y.name} * {name}" if self.rng.random() < 0.7 else f"{y.name} + {name}", y.shape)

    def environment(self) -> None:
        """Arithmetic with something the environment holds."""
        x = self.pick()
        self.made(f"{x.name} {self.rng.choice('*+-')} {self.read_number()}", x.shape)

    def condition(self) -> str:
        """A question of Python's."""
        if self.rng.random() < 0.3:
            return f"{self.read_number()} > 1"
        return self.fill(self.rng.choice(tables.CONDITIONS), self.pick().name)

    def branch(self) -> None:
        """One of two expressions, as Python decides."""
        x = self.pick()
        ways = [self.fill(self.rng.choice(tables.SAME), x.name) for _ in range(2)]
        self.made(f"{ways[0]} if ({self.condition()}) else {ways[1]}", x.shape)

    def loop(self) -> None:
        """A loop of Python's."""
        x = self.pick()
        total = self.made(f"{x.name} * 1.0", x.shape, fresh=True).name
        kind = self.rng.randrange(4)
        loops = (
            ("for _ in range(2):", self.fill(self.rng.choice(tables.SAME), total)),
            (f"for row in {x.name}:", f"{total} + row.sum()"),
            (f"while 2 < {total}.abs().sum() < 1e300:", f"{total} / 2"),
            (f"for i in range({x.name}.shape[0] if {x.name}.dim() else 2):", f"{total} + i"),
        )
        header, change = loops[3 if kind == 1 and not x.shape else kind]
        self.nodes.append(Block(header, (f"{total} = {change}",)))

    def write_fresh(self) -> None:
        """A change in place of a tensor that the step made."""
        x = self.pick()
        copy = self.made(self.rng.choice(tables.COPIES).format(x=x.name), x.shape, fresh=True)
        views = [op for op in tables.SHAPED if op.applies(x.shape) and "." not in op.text[4:] and "@" not in op.text]
        if self.rng.random() < 0.3 and views:
            op = self.rng.choice(views)
            target = self.made(self.fill(op.text, copy.name), op.result(x.shape)).name
            changes = (f"{target}.mul_({self.constant()})", f"{target}.add_({self.constant()})", f"{target}.zero_()")
            self.nodes.append(self.rng.choice(changes))
        else:
            self.nodes.append(self.in_place(copy.name, x.shape))

    def in_place(self, target: str, shape: Shape) -> str:
        """A statement that changes a tensor in place."""
        if shape and isinstance(shape[-1], int) and self.rng.random() < 0.5:
            return self.fill(self.rng.choice(tables.PART_WRITES), target)
        return self.fill(self.rng.choice(tables.WRITES), target, self.like(shape))

    def write_anywhere(self) -> None:
        """A change in place of what may be an argument, state, or needed by a derivative."""
        x = self.pick()
        change = self.in_place(x.name, x.shape)
        self.nodes.append(Block("with aj.no_grad():", (change,)) if self.rng.random() < 0.75 else change)

    def counted(self) -> None:
        """A result whose size depends on values."""
        x = self.pick()
        if not x.shape:
            return self.unary()
        self.made(self.rng.choice(tables.COUNTED).format(x=x.name), ("c",), counted=True)
        return None

    def cast(self) -> None:
        """A round trip through another dtype, or a truth value."""
        x = self.pick()
        self.made(self.rng.choice(tables.CASTS).format(x=x.name, d=self.dtype), x.shape)

    def attempt(self) -> None:
        """An error that the step catches."""
        x, y = self.pick(), self.pick()
        name = self.made(f"{x.name}", x.shape).name
        risky = self.rng.choice(tables.RISKY).format(x=x.name, y=y.name)
        caught = self.rng.choice(("RuntimeError", "Exception", "(RuntimeError, IndexError)"))
        self.nodes.append(Block("try:", (f"{name} = ({risky}).sum() + {x.name}",)))
        self.nodes.append(Block(f"except {caught}:", (f"{name} = {x.name} * 0",)))

    def control(self) -> None:
        """A branch or loop on data inside the step."""
        x = self.pick()
        reads = self.read_number() if self.rng.random() < 0.4 else self.constant()
        a, b = (self.fill(self.rng.choice(tables.SAME[:20]), "z") for _ in range(2))
        if "detach" in a + b:  # whether the result requires gradients: eagerly that of the branch, compiled of either
            a, b = f"({a} + z * 0)", f"({b} + z * 0)"
        if "weight" in f"{a} {b} {reads}":  # the same
            a, b = f"({a} + weight.sum() * 0)", f"({b} + weight.sum() * 0)"
        kind = self.rng.randrange(3)
        if kind == 0:
            text = f"aj.cond({x.name}.sum() > 0, lambda z: {a} * {reads}, lambda z: {b} * 1.0, ({x.name},))"
            self.made(text, x.shape)
        elif kind == 1:
            limit = self.rng.choice(("2", "3"))
            text = f"aj.while_loop(lambda i, z: i < {limit}, lambda i, z: (i + 1, (z * 0.5 + {reads}).sin()), (aj.tensor(0), {x.name}))[1]"
            self.made(text, x.shape)
        elif x.shape:
            part = self.rng.randrange(2)
            init = f"aj.zeros({x.name}.shape[1:], dtype={x.name}.dtype)"
            shape = x.shape[1:] if part == 0 else x.shape
            self.made(f"aj.scan(lambda c, z: (c + z * {reads}, c.sin()), {init}, {x.name})[{part}]", shape)

    def transform(self) -> None:
        """A function transform of a small function that reads the environment."""
        x = self.pick()
        reads = self.read_number() if self.rng.random() < 0.6 else self.constant()
        constant = self.constant()
        if "random" in reads:
            reads = constant
        inner = f"lambda z: ({self.fill(self.rng.choice(tables.SAME[:12]), 'z')} * {reads}).pow(2)"
        total = f"{inner}.sum()"
        choices = [
            (f"aj.func.grad({total})({x.name})", x.shape), (f"aj.func.jvp({inner}, ({x.name},), (aj.ones_like({x.name}),))[1]", x.shape),
            (f"checkpoint({inner}, {x.name}, use_reentrant=False)", x.shape), (f"aj.func.vjp({inner}, {x.name})[1](aj.ones_like({x.name}))[0]", x.shape),
            (f"aj.func.grad(lambda z: aj.func.grad({total})(z).sum())({x.name})", x.shape), (f"aj.func.grad_and_value({total})({x.name})[0]", x.shape),
        ]  # fmt: skip
        if x.shape:
            choices += [(f"aj.func.vmap({f})({x.name})", x.shape) for f in (inner, f"aj.func.grad({total})")] * 2
            functions = f"jacrev({inner})", f"jacfwd({inner})", f"hessian({total})"
            choices += [(f"aj.func.{f}({x.name}).sum()", ()) for f in functions]
        text, shape = self.rng.choice(choices)
        if text.startswith("checkpoint"):  # which reads and draws once more in backward, eagerly
            text = text.replace(f"* {reads}).pow", f"* {constant}).pow")
        self.made(text, shape)

    def gradient(self) -> None:
        """A gradient inside the step, which can be differentiated again."""
        x = self.pick()
        name = f"g{self.taken}"
        self.nodes.append(f"{name} = {x.name} if {x.name}.requires_grad else {x.name}.detach().requires_grad_()")
        loss = self.fill(self.rng.choice(tables.SAME[:20]), name)
        keep = self.rng.choice(("True", "False"))
        self.made(f"aj.autograd.grad(({loss} * {name}).sum(), {name}, create_graph={keep})[0]", x.shape)
