"""Pages that are made by tools are as the tools make them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_op_reference_is_current() -> None:
    made = tool("make_op_reference").pages(DOCS / "reference")
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md")}
    old = [name for name in made if made[name] != kept.get(name)]
    assert not old, "make reference"
    assert set(kept) == set(made)


def test_the_gallery_shows_every_example() -> None:
    examples = {path.stem for path in (ROOT / "examples").glob("[a-z]*.py")}
    assert {path.stem for path in (DOCS / "gallery").glob("*.svg")} == examples, "make gallery"
    made = tool("make_gallery")
    assert {path.stem for path in (DOCS / "gallery").glob("*.png")} == {*made.PICTURES, "results"}, "make gallery"
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == made.page()
    sizes = [path.stat().st_size for path in (DOCS / "gallery").iterdir()]
    assert max(sizes) < 100_000
    assert sum(sizes) < 700_000


def test_every_picture_of_a_page_has_a_text() -> None:
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        assert "![](" not in page.read_text(encoding="utf-8"), page


@pytest.mark.parametrize("marker", ["<!-- counts -->", "<!-- end of counts -->"])
def test_the_coverage_page_has_room_for_its_counts(marker: str) -> None:
    assert (DOCS / "coverage.md").read_text(encoding="utf-8").count(marker) == 1


def test_the_page_of_devices_lists_what_is_called_back() -> None:
    """It grows only where somebody writes it down."""
    page = (DOCS / "cuda.md").read_text(encoding="utf-8")
    assert page == tool("make_callbacks").page(page), "python tools/make_callbacks.py"
