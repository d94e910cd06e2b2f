"""What notebooks show of modules, optimisers, steps and counters: all of it, folded, every text escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import autojit as aj
from autojit import nn


class Balanced(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


class Odd(nn.Module):
    def extra_repr(self) -> str:
        return "<script>"

    def forward(self, x: Any) -> Any:
        return x


def test_a_module_is_a_tree_of_its_parts_with_their_sizes() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2, bias=False), Odd()))
    model[0].weight.requires_grad_(False)
    shown = model._repr_html_()
    assert Balanced(shown).seen.count("details") == 2
    assert "24 parameters, 12 fixed, training" in shown
    assert "Linear(in_features=4, out_features=2, bias=False)" in shown
    assert "&lt;script&gt;" in shown and "<script>" not in shown
    model[1].eval()
    assert "partly training" in model._repr_html_()
    assert "not made yet" in nn.LazyLinear(3)._repr_html_()
    assert aj.jit(model)._repr_html_().count("details") == shown.count("details")


def test_an_optimiser_is_a_row_per_group() -> None:
    model = nn.Linear(3, 4)
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}]
    shown = aj.optim.SGD(groups, lr=0.1, momentum=0.9)._repr_html_()
    assert Balanced(shown).seen.count("tr") == 3
    assert all(f">{text}<" in shown for text in ("0.5", "0.1", "0.9", "momentum", "12", "4"))


def test_steps_and_counters_show_themselves() -> None:
    step = aj.jit(lambda x: x + 1)
    step(aj.ones(2))
    assert "a call is one native call" in step._repr_html_()
    Balanced(step._repr_html_())
    stats: Any = step.stats()
    assert Balanced(stats._repr_html_()).seen.count("tr") == len(stats)
    assert stats == dict(stats)
