"""The page of a step: its data say what the step is, its text is data alone, and a browser draws all of it."""

from __future__ import annotations

import html
import html.parser
import json
import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import ArgumentError, TraceError
from autojit.core.sizes import evaluate
from autojit.jit.view.data import view_data
from autojit.jit.view.kernels import flat_kernels
from autojit.jit.view.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def training(name: str = "train") -> Any:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = aj.optim.Adam(model.parameters())

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    train.__name__ = train.__qualname__ = name
    step = aj.jit(train)
    for _ in range(2):
        step(aj.ones(5, 6), aj.tensor([0, 1, 2, 0, 1]))
    return step


def deciding() -> Any:
    @aj.jit
    def decide(x: Any) -> Any:
        y = x.tanh()
        return y.exp() if y.sum() > 0 else y.neg()

    decide(aj.ones(4))
    return decide


def looping() -> Any:
    @aj.jit
    def loop(x: Any) -> Any:
        return aj.while_loop(lambda k, v: k < 3, lambda k, v: (k + 1, v.tanh() + 1), (aj.tensor(0), x))[1]

    loop(aj.ones(4))
    return loop


def differentiated() -> Any:
    step = aj.jit(lambda x: x.tanh().sum())
    x = aj.ones(4, requires_grad=True)
    step(x).backward()
    return step


def of_open_sizes() -> Any:
    step = aj.jit(lambda x: (x @ x.mT).softmax(-1).sum(), dynamic=True)
    for n in (7, 9):
        step(aj.ones(n, 4))
    return step


KINDS = [training, deciding, looping, differentiated, of_open_sizes]


@pytest.fixture(scope="module")
def trained() -> Any:
    return training()


@pytest.mark.parametrize("make", KINDS)
def test_a_page_is_plain_data_in_which_every_number_is_in_its_table(make: Any) -> None:
    data = json.loads(json.dumps(view_data(make(), assembly=False)))
    assert len(data["types"]) == len(data["type_bytes"])
    for program in data["programs"]:
        for graph in filter(None, (program["captured"], program["optimised"])):
            count = len(graph["inputs"])
            for node in graph["nodes"]:
                assert all(value < count for value in node[2])  # a node reads what is there before it
                count += len(node[3])
                assert node[4] < len(data["sources"])
                assert node[5] < len(data["parts"])
                assert node[6] < len(program["kernels"])
            assert all(value < count for value in graph["outputs"])
        for kernel in program["kernels"]:
            assert all(n < len(program["optimised"]["nodes"]) for n in kernel["nodes"])
            assert all(text < len(data["texts"]) for text in kernel["texts"])
            assert kernel["name"]


@pytest.mark.parametrize("make", KINDS)
def test_every_kernel_of_the_schedule_is_there_with_its_nodes(make: Any) -> None:
    step = make()
    last = step.last_step()
    data = view_data(step, assembly=False)
    schedules = [part.schedule for part in last.parts]
    told = [program for program in data["programs"] if not re.match("decision|.*: body", program["label"])]
    assert len(told) == len(schedules)
    for program, schedule in zip(told, schedules, strict=True):
        kernels = [kernel for kernel, _, _ in flat_kernels(schedule)]
        numbers = {node: k for k, node in enumerate(schedule.graph.nodes)}
        assert [k["nodes"] for k in program["kernels"]] == [[numbers[n] for n in k.nodes] for k in kernels]


def test_the_programs_of_a_step_are_its_decisions_itself_and_the_bodies_of_loops() -> None:
    labels = [program["label"] for program in view_data(deciding(), assembly=False)["programs"]]
    assert [label.partition(" at ")[0] for label in labels] == ["decision 1", "step"]
    labels = [program["label"] for program in view_data(looping(), assembly=False)["programs"]]
    assert labels[0] == "step"
    assert "step: body 1 of kernel" in labels[1]
    assert view_data(differentiated(), assembly=False)["programs"][0]["label"] == "forward"


@pytest.mark.parametrize("make", KINDS)
def test_boxes_of_memory_that_are_live_at_once_do_not_overlap_and_fit_the_arena(make: Any) -> None:
    step = make()
    for program in view_data(step, assembly=False)["programs"]:
        for arena in program["memory"]:
            blocks = sorted({tuple(block[1:5]) for block in arena["blocks"]})
            for offset, size, first, last in blocks:
                assert 0 <= offset and offset + size <= arena["bytes"]
                assert 0 <= first <= last < arena["times"]
            for k, (offset, size, first, last) in enumerate(blocks):
                for other in blocks[k + 1 :]:
                    meet = first < other[3] and other[2] < last  # one that takes over the other's memory meets it once
                    assert not meet or offset + size <= other[0] or other[0] + other[1] <= offset
    last = step.last_step()
    arenas = view_data(step, assembly=False)["programs"][-1]["memory"]
    peak = evaluate(last.parts[-1].schedule.memory.peak_bytes, last.segment.sizes())
    assert sum(arena["bytes"] for arena in arenas) <= max(peak, 1) or make is looping


def test_kernels_that_were_timed_have_their_times_and_others_estimates(trained: Any) -> None:
    before = view_data(trained, assembly=False)
    assert before["timing"] is None
    assert all(kernel["ns"] is None for kernel in before["programs"][0]["kernels"])
    step = training()
    with step.timing() as timing:
        for _ in range(12):
            step(aj.ones(5, 6), aj.tensor([0, 1, 2, 0, 1]))
    kernels = view_data(step, assembly=False)["programs"][0]["kernels"]
    assert timing.by_kernels == 2
    assert all(kernel["ns"] is not None and kernel["ns"] >= 0 for kernel in kernels)


def test_texts_of_kernels_come_with_their_assembly(trained: Any) -> None:
    data = view_data(trained)
    assert any("ret" in text["asm"] for text in data["texts"])
    assert all(text["asm"] for text in data["texts"] if text["llvm"].startswith("define"))


class Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_no_text_becomes_markup_and_nothing_is_fetched(trained: Any) -> None:
    data = view_data(trained, assembly=False)
    data["name"] = "</script><img src=x onerror=alert(1)> <!-- \u2028"
    data["sources"][0][1] = "x = '</script><b>'"
    made = page(data)
    parser = Elements()
    parser.feed(made)
    assert [tag for tag, _ in parser.found if tag in ("img", "b", "link", "iframe")] == []
    assert [tag for tag, _ in parser.found].count("script") == 2
    assert not any({"src", "href"} & attributes.keys() for _, attributes in parser.found)
    told = re.search(r'id="data">(.*?)</script>', made, re.DOTALL)
    assert told is not None
    assert "\u2028" not in told.group(1)
    assert json.loads(told.group(1))["name"] == data["name"]


def test_scripts_never_make_markup_of_text() -> None:
    folder = files("autojit.jit.view")
    for name in ("view.js", "tree.js", "charts.js"):
        text = (folder / name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|import\(", text), (
            name
        )
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), name
        assert max(map(len, text.splitlines())) <= 180, name
        assert len(text.splitlines()) < 450, name


def test_the_view_is_a_path_and_shows_itself_in_notebooks(trained: Any, tmp_path: Path) -> None:
    view = trained.view(tmp_path / "step.html", assembly=False)
    assert os.fspath(view) == str(view) == str(tmp_path / "step.html")
    assert Path(view).read_text(encoding="utf-8") == view.html
    assert view._repr_html_().startswith("<iframe")
    assert "<script" not in view._repr_html_()  # it is in the frame's document, quoted
    again = trained.view(assembly=False)
    try:
        assert Path(again).stat().st_size > 0
    finally:
        os.remove(again)


def test_refusals_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not been called"):
        aj.jit(lambda x: x).view()
    with pytest.raises(ArgumentError, match="folder"):
        training().view(tmp_path, assembly=False)


def test_modules_have_a_view(tmp_path: Path) -> None:
    layer = aj.jit(nn.Linear(3, 2))
    layer(aj.ones(1, 3))
    assert Path(layer.view(tmp_path / "layer.html")).exists()


VISIT = """
const told = document.createElement("pre");
for (const [tab, stage] of [["graph", "captured"], ["kernels", "llvm"], ["memory", "schedule"], ["time", "explain"]]) {
  document.querySelector(`[data-key="${tab}"]`).click();
  document.querySelector(`[data-key="${stage}"]`).click();
  told.textContent += `${"@".repeat(5)} ${tab}\\n${document.querySelector("main").innerHTML}\\n`;
}
document.querySelector("main").remove();
document.body.append(told);
"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: no browser draws the page")
def test_a_browser_draws_every_picture(trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "step.html"
    path.write_text(trained.view(path, assembly=False).html.replace("</body>", f"<script>{VISIT}</script></body>"))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
    command = [str(CHROMIUM), *options, "--dump-dom", f"file://{path}#query=tanh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    drawn = dict(part.split("\n", 1) for part in html.unescape(done.stdout).split("@@@@@ ")[1:])
    assert drawn.keys() == {"graph", "kernels", "memory", "time"}
    assert 'role="treeitem"' in drawn["graph"]
    assert "loss.backward()" in drawn["graph"]
    assert 'class="hit"' in drawn["graph"]
    assert "define void @kernel" in drawn["kernels"]
    kernels = view_data(trained, assembly=False)["programs"][0]["kernels"]
    found = drawn["kernels"].count('<tr class="kernel')
    assert (
        0 < sum("tanh" in kernel["name"] for kernel in kernels) <= found < len(kernels)
    )  # and those of the layer Tanh
    assert "<rect" in drawn["memory"]
    assert 'class="flame"' in drawn["time"]
    assert "Estimated" in drawn["time"]


def test_open_sizes_are_told_with_their_arguments_and_last_values() -> None:
    data = view_data(of_open_sizes(), assembly=False)
    assert data["sizes"]
    assert all(re.fullmatch(r"x\.shape\[\d\] \(last \d+\)", place) for place in data["sizes"].values())
