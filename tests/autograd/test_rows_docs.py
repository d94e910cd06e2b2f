"""Reference rows about names, pages and parity: what the namespace holds, what the documentation has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.testing import assert_close
from tests.autograd.modes import Mode
from tests.autograd.parity_cases import CASES, plain
from tests.docs.pages import FENCE, blocks
from tests.docs.test_examples import PAGES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDED = json.loads((ROOT / "tests" / "autograd" / "recorded" / "s0.json").read_text(encoding="utf-8"))
A_PAGE = "a page is read, not compiled"
NAMES = (
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad", "function",
    "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled",
    "is_multithreading_enabled", "no_grad", "profiler", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled", "variable",
)  # fmt: skip
NOTES = ("Autograd mechanics", "Broadcasting", "CUDA semantics", "Extending", "Frequently asked questions",
         "Multiprocessing", "Reproducibility", "Serialization", "Windows")  # fmt: skip
PACKAGES = (
    "torch", "torch.Tensor", "tensor attributes", "type info", "torch.sparse", "torch.cuda", "storage", "torch.nn",
    "torch.nn.functional", "torch.nn.init", "torch.optim", "torch.autograd", "torch.distributed", "torch.distributions",
    "torch.jit", "torch.multiprocessing", "torch.utils.bottleneck", "torch.utils.checkpoint",
    "torch.utils.cpp_extension", "torch.utils.data",
    "torch.utils.dlpack", "torch.utils.ffi", "torch.hub", "torch.utils.model_zoo", "torch.onnx",
    "torch.legacy",
)  # fmt: skip


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """The cells of every line of every table."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_S0_01_the_namespace_holds_every_name(mode: Mode) -> None:
    def body() -> list[str]:
        from autojit import autograd

        return [name for name in NAMES if not hasattr(autograd, name)]

    assert mode(body)() == []
    assert aj.autograd.__doc__


@pytest.mark.parametrize("name", CASES)
def test_S0_19_results_are_those_recorded_with_pytorch(mode: Mode, name: str) -> None:
    function = mode(lambda: CASES[name](aj))
    for _ in range(3):
        compare(plain(function()), RECORDED[name])


def compare(found: Any, recorded: Any) -> None:
    """Numbers agree closely, all else exactly."""
    if isinstance(recorded, list):
        assert len(found) == len(recorded)
        for a, b in zip(found, recorded, strict=True):
            compare(a, b)
    elif isinstance(recorded, float):
        assert_close(float(found), recorded, rtol=1e-14, atol=0.0)
    else:
        assert found == recorded


def test_S0_20_the_licence_is_stated(mode: Mode) -> None:
    mode.does_not_apply(A_PAGE)
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    # whether a sentence was copied cannot be tested without the pages; the notices a copy would carry can be looked for
    for path in (*DOCS.rglob("*.md"), *(ROOT / "src").rglob("*.py")):
        assert not re.search(r"Copyright|All rights reserved|xdoctest", path.read_text(encoding="utf-8")), path


def test_S1_12_a_page_compares_the_ways_of_disabling_gradients(mode: Mode) -> None:
    mode.does_not_apply(A_PAGE)
    table = page("autograd.md").split("## Switching gradients off")[1].split("\n## ")[0]
    ways = " ".join(row[0] for row in rows_of(table))
    for name in ("no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "requires_grad_", "detach"):
        assert name in ways


@pytest.fixture(scope="module")
def api_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("api") / "api.md"
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_api_index.py"), str(target)], check=True, capture_output=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )  # fmt: skip
    return target


def test_S1_43_every_public_name_links_to_its_source(mode: Mode, api_page: Path) -> None:
    mode.does_not_apply(A_PAGE)
    text = api_page.read_text(encoding="utf-8")
    linked: dict[str, dict[str, tuple[Path, int]]] = {}
    for section in text.split("\n## ")[1:]:
        found = re.findall(r"^\| \[([^\]]+)\]\(([^)#]+)#L(\d+)\)", section, re.MULTILINE)
        linked[section.split("`")[1]] = {
            name: ((api_page.parent / path).resolve(), int(line)) for name, path, line in found
        }
    assert set(aj.autograd.__all__) == set(linked["autojit.autograd"])
    assert set(aj.__all__) <= set(linked["autojit"])
    assert set(aj.nn.functional.__all__) == set(linked["autojit.nn.functional"])
    assert len(linked["autojit.Tensor"]) > 300
    sources: dict[Path, list[str]] = {}
    for names in linked.values():
        for name, (file, line) in names.items():
            lines = sources.setdefault(file, file.read_text(encoding="utf-8").splitlines())
            assert 1 <= line <= len(lines), name
    for name in ("backward", "grad", "no_grad", "Function", "gradcheck"):
        file, line = linked["autojit.autograd"][name]
        assert re.match(rf"(def|class) {name}\b", sources[file][line - 1]), name


def test_S1_44_every_example_of_the_documentation_runs(mode: Mode) -> None:
    mode.does_not_apply("examples run as they stand; those under @aj.jit are among them")
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"]  # the docstrings
    assert {"tests", "src"} <= set(options["testpaths"])
    examples = 0
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        examples += len(blocks(text))
        prompts = [line for line in re.sub(FENCE, "", text).splitlines() if line.startswith(">>>")]
        assert not prompts, f"{path}: examples outside of python blocks do not run"
    assert examples > 50
    for path in (*PAGES, *(ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"doctest:\s*\+SKIP", text), path
        if path.suffix == ".py":
            assert not re.search(r"^\s*```", text, re.MULTILINE), f"{path}: fenced examples in docstrings do not run"


def test_S3_01_parity_is_judged_against_current_pytorch(mode: Mode) -> None:
    mode.does_not_apply("the version that was recorded with is a fact, not code")
    library, version = RECORDED["recorded with"].split()
    assert library == "PyTorch"
    assert tuple(int(part) for part in version.split("+")[0].split(".")) >= (2, 13, 0)
    assert set(RECORDED) - {"recorded with"} == set(CASES)


def test_S3_02_every_note_has_a_section(mode: Mode) -> None:
    mode.does_not_apply(A_PAGE)
    sections = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", page("notes.md"), re.MULTILINE))
    for title in NOTES:
        assert len(sections[title].strip()) > 60, title
    assert "notes.md" in page("index.md")


def test_S3_03_the_coverage_of_every_package_is_stated(mode: Mode) -> None:
    mode.does_not_apply(A_PAGE)
    stated: dict[str, Any] = {}
    for row in rows_of(page("coverage.md")):
        stated.setdefault(row[0].strip("`"), row[1:])  # the first table: packages; names are counted below it
    for package in PACKAGES:
        state, why = stated[package]
        assert state in ("provided", "provided in part", "provided differently", "planned", "out of scope"), package
        assert len(why) > 15, package
    assert "coverage.md" in page("index.md")
