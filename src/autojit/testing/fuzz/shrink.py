"""Shrinking: the fewest statements that still show a finding of the same kind.

Delta debugging over the tree of statements: pieces of halving size are left out, compound statements are replaced by
their bodies, then single lines are tried in simpler forms. A candidate counts when the verdict has the same kind.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from autojit.testing.fuzz.program import Block, Node, Program, lines_of
from autojit.testing.fuzz.running import forget, load
from autojit.testing.fuzz.verdicts import Verdict, judge

SIMPLER = (  # forms of a line that are tried instead of it
    (r"sample\(\d+, ", "sample(1, "),
    (r"kind='ties'", "kind='smooth'"),
    (r"return \{'a': (.*?), 'b': .*\}", r"return \1"),
    (r"return \[?(\w+), .*", r"return \1"),
    (r"return .*, (\w+)\]?$", r"return \1"),
    (r", order=2\)", ", order=1)"),
    (r"\.detach\(\)\.requires_grad_\(\)", ""),
    (r"\.requires_grad_\(\)", ""),
    (r"see\.watch\((\w+=lambda: \w+), .*\)", r"see.watch(\1)"),
    (r"see\.watch\(.*?, (.*)\)", r"see.watch(\1)"),
    (r"see\.watch\((.*), [^,]*\)", r"see.watch(\1)"),
    (r"^(\w+) = .* if \((.*)\) else (.*)$", r"\1 = \3"),
    (r"^(\w+) = (\w+) [-+*] .*$", r"\1 = \2"),
    (r"^(\w+) = (\w+)\..*$", r"\1 = \2"),
    (r"^(\w+) = .*\b([xyt]\d*)\b.*$", r"\1 = \2"),
    (r"^(\w+) = .*\b([xyt]\d*)\b.*$", r"\1 = \2 * 1"),
    (r"^(loss) = (.*?\)\.mean\(\)) \+ .*$", r"\1 = \2"),
    (r"dtype=aj\.(float32|float16|bfloat16)", "dtype=aj.float64"),
    (r"^@(?!jit).*$", ""),
)


def shrink(
    program: Program, verdict: Verdict, seconds: float = 20.0, judged: Callable[[Program], Verdict] | None = None
) -> Program:
    """The smallest program found within ``seconds`` whose verdict is of the same kind."""
    passes_off = verdict.mode == "passes off"
    search = _Search(program, verdict, seconds, judged or (lambda p: judge_program(p, passes_off)))
    search.end_at_the_finding()
    search.watch_less()
    search.drop_unused()
    size = max(1, len(program.body) // 2)
    while not search.is_over():
        before = search.best
        search.drop_pieces(size)
        if size == 1:
            search.drop_unused()
            search.unwrap()
            search.simplify()
            if search.best is before:
                break
        size = max(1, size // 2)
    return search.best


def judge_program(program: Program, passes_off: bool = True) -> Verdict:
    """The verdict of a program; "broken" when its text is not Python."""
    name = f"candidate {program.seed}"
    try:
        function = load(program.script(), name)
    except (SyntaxError, ValueError):
        return Verdict("broken")
    try:
        return judge(function, program.dtype, passes_off)
    finally:
        forget(name)


class _Search:
    """The best program so far, and what was tried."""

    def __init__(
        self, program: Program, verdict: Verdict, seconds: float, judged: Callable[[Program], Verdict]
    ) -> None:
        self.best, self.verdict, self.judged = program, verdict, judged
        self.until = time.monotonic() + seconds
        self.tried: set[str] = set()

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def accept(self, candidate: Program) -> bool:
        """Take a candidate over if it shows the same kind of finding."""
        text = candidate.script()
        if text in self.tried or self.is_over():
            return False
        self.tried.add(text)
        found = self.judged(candidate)
        is_same = found.is_finding and (found.kind, found.mode) == (self.verdict.kind, self.verdict.mode)
        if is_same:
            self.best = candidate
        return is_same

    def put(self, nodes: Sequence[Node], path: Path = ()) -> bool:
        """Try statements in the place of those that are there."""
        return self.accept(self.best.with_body(_replaced(self.best.body, path, nodes)))

    def end_at_the_finding(self) -> None:
        """Leave out what comes after the call that showed the finding."""
        match = re.search(r"call (\d+)", self.verdict.place)
        calls = [k for k, node in enumerate(self.best.body) if "see.call(" in str(node)]
        if match and int(match[1]) < len(calls):
            self.put(self.best.body[: calls[int(match[1])]])

    def watch_less(self) -> None:
        """Watch only what the finding was seen in."""
        named = re.search(r": (\w+)", self.verdict.place)
        for k, node in enumerate(self.best.body):
            if isinstance(node, str) and node.startswith("see.watch("):
                body = self.best.body
                kept = re.search(rf"\b{named[1]}=lambda: [\w.]+", node) if named else None
                line = (f"see.watch({kept[0]})",) if kept else ()
                self.put((*body[:k], *line, *body[k + 1 :]))
                return

    def drop_unused(self) -> None:
        """Leave out, all at once, what makes names that nothing reads."""
        for _ in range(4):
            text = "\n".join(lines_of(self.best.body, 0))
            fewer = tuple(node for node in self.best.body if not _is_unused(node, text))
            if len(fewer) == len(self.best.body) or not self.put(fewer):
                return

    def drop_pieces(self, size: int) -> None:
        """Leave out runs of ``size`` statements, in every list of statements, last ones first."""
        for path in sorted(_paths(self.best.body), key=len):
            nodes = _at(self.best.body, path)
            start = len(nodes or ()) - size
            while nodes is not None and start > -size:
                first = max(start, 0)
                fewer = (*nodes[:first], *nodes[first + size :])
                if (fewer or path) and self.put(fewer, path):
                    nodes = fewer
                start -= size

    def unwrap(self) -> None:
        """Replace compound statements by what they contain."""
        for path in _paths(self.best.body):
            nodes = _at(self.best.body, path) or ()
            for k, node in enumerate(nodes):
                if isinstance(node, Block) and not node.header.startswith(("def step", "class")):
                    plain = (*nodes[:k], *node.body, *nodes[k + 1 :])
                    if self.put(plain, path):
                        break
                if isinstance(node, Block) and len(node.lead) > 1:
                    self.put((*nodes[:k], replace(node, lead=node.lead[:1]), *nodes[k + 1 :]), path)

    def simplify(self) -> None:
        """Try simpler forms of single lines."""
        for path in _paths(self.best.body):
            for k in range(len(_at(self.best.body, path) or ())):
                for pattern, form in SIMPLER:
                    nodes = _at(self.best.body, path) or ()
                    node = nodes[k] if k < len(nodes) else None
                    if isinstance(node, str) and re.search(pattern, node):
                        self.put((*nodes[:k], re.sub(pattern, form, node), *nodes[k + 1 :]), path)


def _is_unused(node: Node, text: str) -> bool:
    """Whether a definition's name appears once only."""
    head = node if isinstance(node, str) else node.header
    last = head.rsplit("\n", 1)[-1]
    found = re.match(r"(?:def |class )?(\w+)(?: = |\(|:)", last if " = " in last else head)
    if found is None or "see." in head or head.startswith("for "):
        return False
    used = len(re.findall(rf"\b{found[1]}\b", text))
    return used <= len(re.findall(rf"\b{found[1]}\b", "\n".join(lines_of((node,), 0))))


Path = tuple[int, ...]


def _paths(body: Sequence[Node], path: Path = ()) -> Iterator[Path]:
    """The places of all lists of statements."""
    yield path
    for k, node in enumerate(body):
        if isinstance(node, Block):
            yield from _paths(node.body, (*path, k))


def _at(body: Sequence[Node], path: Path) -> Sequence[Node] | None:
    """The statements at a place, None where it is gone."""
    for k in path:
        node = body[k] if k < len(body) else None
        if not isinstance(node, Block):
            return None
        body = node.body
    return body


def _replaced(body: Sequence[Node], path: Path, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The tree with other statements at a place."""
    if not path:
        return tuple(nodes)
    node = body[path[0]]
    assert isinstance(node, Block)
    return (*body[: path[0]], replace(node, body=_replaced(node.body, path[1:], nodes)), *body[path[0] + 1 :])
