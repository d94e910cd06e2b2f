"""Containers that a step changes, in several ways at once, are as eager calls leave them, or the first call is refused.

Random steps are put together from statements; each is called with other tags and values, eagerly and compiled.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

import autojit as aj

STATEMENTS = (
    "items.append(y.item())", "items.append(1)", "items[0] += 1", "items[-1] = y.item()", "items[1] = items[-1]",
    "items.pop(0)", "items.sort()", "items.insert(1, 5.0)", "del items[0]", "items.remove(max(items))",
    "items[:1] = [y.item()]",
    "items.extend([y.item(), 3.0])", "items.reverse()", "last.append(y.item())", "last.rotate(1)",
    "log['loss'] = y.item()", "log.update(loss=y.item(), tag=tag)", "log.setdefault(tag, []).append(y.item())",
    "log.pop(tag, None)", "log.__setitem__(tag, y.item())", "log['n'] = log.get('n', 0) + 1", "log.update({tag: 1})",
    "counts[tag] += 1", "counts.update([tag])", "counts[tag] = counts['a'] + 2", "seen.add(tag)", "seen.discard('a')",
    "rows[tag].append(y.detach())", "rows['b'].clear()", "log['best'] = min(log.get('best', 9.0), y.item())",
)  # fmt: skip


def _run(body: list[str], compile_with: Any) -> list[Any]:
    """What the containers hold after every call; a text where the first call is refused."""
    outside: dict[str, Any] = {
        "items": [4.0, 2.0, 3.0, 7.0, 5.0, 6.0, 1.0, 8.0, 9.0, 0.5, 1.5, 2.5],
        "last": deque([1.0], maxlen=3), "log": {}, "counts": Counter(), "seen": {"a"},
        "rows": defaultdict(list),
    }  # fmt: skip
    exec("def step(x, tag):\n    y = x.sum()\n    " + "\n    ".join(body) + "\n    return y", outside)
    step = compile_with(outside["step"])
    held = []
    for k, tag in enumerate("abaa"):
        try:
            step(aj.ones(2) * k, tag)
        except aj.core.errors.TraceError as error:
            assert k == 0, f"refused at call {k}: {error}"
            return ["refused"]
        held.append(_plain([outside[name] for name in ("items", "last", "log", "counts", "seen", "rows")]))
    return held


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _plain(part)) for key, part in value.items()]
    if isinstance(value, list | deque | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, aj.Tensor) else value


@pytest.mark.parametrize("seed", range(60))
def test_containers_hold_what_eager_calls_leave_in_them(seed: int) -> None:
    body = random.Random(seed).sample(STATEMENTS, 1 + seed % 4)
    compiled = _run(body, aj.jit)
    assert compiled in (["refused"], _run(body, lambda f: f)), body


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_single_change_is_never_refused(statement: str) -> None:
    assert _run([statement], aj.jit) == _run([statement], lambda f: f)
