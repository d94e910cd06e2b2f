"""What the documentation site is made of, without building it: menu, links, entries of the reference, examples."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tools.docs_site import arguments, entries, example_book, navigation, reference, repository
from tools.docs_site.public_names import Page, base_of, names_of, pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PARTS = 10  # of the examples a run takes one; --slow takes all
NAMES = [(page, name) for page in pages() for name in page.names]


def value_of(page: Page, name: str) -> Any:
    return reference.attribute(reference.space_of(page.prefix), name)


@functools.cache
def base_on(page: Page, name: str) -> str:
    return base_of(name, set(names_of(reference.space_of(page.prefix))))


def example_of(page: Page, name: str) -> example_book.Example | None:
    return example_book.example(page.prefix, name, value_of(page, name), base_on(page, name))


def leaves(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [page for part in parts for page in leaves(part)]


def test_the_menu_has_every_page_once() -> None:
    made = {"Functions": [("Indexing", "api/tensors/indexing.md")]}
    listed = leaves(navigation.menu(DOCS, made))
    assert len(listed) == len(set(listed))
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= set(listed)
    assert "api/tensors/indexing.md" in listed


def test_a_page_that_nothing_names_is_in_the_menu(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# Home\n## Guides\n- [One](one.md)\n## Project\n- [Two](two.md)\n")
    for name in ("one", "two", "new"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n")
    menu = navigation.menu(tmp_path, {})
    assert menu == [{"Home": "index.md"}, {"Guides": ["one.md", "new.md"]}, {"Project": ["two.md"]}]


def test_links_that_leave_the_pages_lead_to_what_the_site_has() -> None:
    found = repository.Repository()
    for path in DOCS.rglob("*.md"):
        text = found.page(path.read_text(encoding="utf-8"), path.relative_to(DOCS).as_posix())
        assert "](../src/" not in text
    assert "src/autojit/ops/matmul.py" in found.sources
    assert "CONTRIBUTING.md" in found.pages


def test_a_name_is_one_word_of_the_search_index() -> None:
    """A reader types it as it is written, and words of other names must not hide it."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.search(r"separator: '(.*?)'", settings)
    assert found is not None
    assert "pipeline: []" in settings, "no words are left out of the index: some are names"
    broken = [name for _, name in NAMES if re.split(found[1], name) != [name]]
    assert not broken


def test_code_is_left_as_it_is() -> None:
    text = "see [this](../src/autojit/cache.py) and `[not](../this.md)`\n```text\n[nor](../that.md)\n- a\n```\n- b\n"
    made = repository.Repository().page(text, "page.md")
    assert made.startswith("see [this](source/src/autojit/cache.py.html) and `[not](../this.md)`\n```text\n[nor]")
    assert "[nor](../that.md)\n- a\n```\n\n- b" in made


def test_the_beginning_of_every_example_is_as_the_page_says() -> None:
    ((_, code),) = blocks((DOCS / "api.md").read_text(encoding="utf-8"))
    assert code == example_book.PRELUDE


def test_every_public_name_has_a_signature_and_a_text() -> None:
    without = []
    for page, name in NAMES:
        value = value_of(page, name)
        signatures = entries.signatures(page.prefix, name, value)
        text = entries.text_of(name, value, base_on(page, name))
        assert "`" not in re.sub(r"`[^`\n]+`", "", text), f"{page.prefix}.{name}: code that is broken: {text}"
        if not text or not all(f".{name}" in signature for signature in signatures):
            without.append(f"{page.prefix}.{name}")
    assert not without


def without_example() -> list[str]:
    return [f"{page.prefix}.{name}" for page, name in NAMES if not example_of(page, name)]


def test_names_have_examples() -> None:
    """All but one of a hundred: names that were just added may wait for theirs until the next release."""
    without = without_example()
    assert len(without) <= len(NAMES) // 100, f"add them to tools/docs_site/examples: {without}"
    assert len(NAMES) > 2000


@pytest.mark.slow
def test_every_name_has_an_example() -> None:
    assert not without_example(), "add them to tools/docs_site/examples"


def part_of(page: Page, name: str) -> int:
    return zlib.crc32(f"{page.prefix}.{name}".encode()) % PARTS


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_examples_run(part: int) -> None:
    wrong = []
    for page, name in NAMES:
        found = example_of(page, name) if part_of(page, name) == part else None
        if found is None:
            continue
        try:
            shown = example_book.session(found)
        except Exception as error:
            wrong.append(f"{page.prefix}.{name}: {type(error).__name__}: {error}")
        else:
            assert shown.startswith(">>> "), name
    assert not wrong


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    assert (tmp_path / "site" / "api" / "optim" / "Adam.html").is_file()


def test_examples_of_methods_and_forms_follow_from_those_of_functions() -> None:
    function = example_book.Example("x = aj.ones(2)\naj.add(x, aj.tensor([1.0, 2.0]), alpha=2)")
    method = example_book.as_method(function, "add")
    assert method is not None
    assert method.code == "x = aj.ones(2)\nx.add(aj.tensor([1.0, 2.0]), alpha=2)"
    form = example_book.in_place(function, "add", "add_")
    assert form.code.splitlines()[1] == "x.add_(aj.tensor([1.0, 2.0]), alpha=2)"
    assert example_book.as_method(example_book.Example("aj.cat([aj.ones(2)])"), "cat") is None
    assert example_book.session(function).splitlines()[-1] == "tensor([3., 5.])"


def test_an_example_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example_book.session(example_book.Example("aj.save(aj.ones(2), 'x.pt')\naj.load('x.pt')"))
    assert not list(tmp_path.iterdir())


def test_an_example_that_is_meant_to_raise_shows_the_error() -> None:
    shown = example_book.session(example_book.Example("aj.ones(2, 3) @ aj.ones(2, 3)", raises=True))
    assert shown.endswith("Traceback (most recent call last):\nShapeError: matmul: inner axes differ")
    with pytest.raises(RuntimeError):
        example_book.session(example_book.Example("aj.ones(2, 3) @ aj.ones(2, 3)"))


def test_docstrings_become_markdown_that_shows_the_same() -> None:
    doc = "Adds ``a * b`` to x_0 <now>.\n\nArgs:\n    x: a tensor\n        of floats\n\nExample:\n    >>> f(1)\n    2\n"
    made = entries.markdown(doc)
    assert made == "Adds `a * b` to x\\_0 \\<now>.\n\n**Args**\n\n- `x`: a tensor\n    of floats"


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    text = entries.laid_out(f"f({', '.join(f'parameter_{k}: tuple[int, int] = (0, {k})' for k in range(4))}) -> Tensor")
    assert text.splitlines()[1] == "    parameter_0: tuple[int, int] = (0, 0),"
    assert text.endswith("\n) -> Tensor")
    assert len(text.splitlines()) == 6


def test_arguments_are_described_where_the_docstring_does_not() -> None:
    from autojit import nn, optim

    lines = arguments.described("optim", optim.SGD, "text")
    assert lines[0] == "**Arguments**"
    assert {"- `lr`", "- `momentum`"} <= {line.partition(":")[0] for line in lines}
    assert not arguments.described("optim", optim.SGD, "**Args**\n\n- `lr`: said already")
    assert not any("`weight`" in line for line in arguments.described("nn", nn.BCELoss, ""))
    classes = {name for kind in (optim, optim.lr_scheduler, nn) for name in dir(kind)}
    assert set(arguments.EXCEPTIONS) <= classes
