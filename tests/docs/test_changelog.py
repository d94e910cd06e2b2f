"""CHANGELOG.md is what the fragments of changelog.d say, and making it again changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import make_changelog as made

ROOT = Path(__file__).resolve().parents[2]


def test_every_fragment_can_be_gathered() -> None:
    text = made.changelog(ROOT / "changelog.d", "")
    assert text.count("\n- ") == len(list((ROOT / "changelog.d").glob("*.*.md")))
    assert made.changelog(ROOT / "changelog.d", text) == text


def test_the_changelog_says_nothing_that_no_fragment_or_version_says() -> None:
    """Fragments that came since ``make changelog`` ran may be missing, so that branches need not touch one file."""
    kept = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    known = made.changelog(ROOT / "changelog.d", kept)
    unknown = [item for item in kept.split("\n- ")[1:] if item.split("\n\n")[0].strip() not in known]
    assert not unknown, "make changelog"


def test_kinds_and_issues_are_in_order_and_versions_stay(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("how to\n")
    (tmp_path / "2-old.fixed.md").write_text("An error.\n")
    (tmp_path / "10-new.fixed.md").write_text("Another.\nIts second line.\n")
    (tmp_path / "3-more.added.md").write_text("See [a page](docs/page.md).\n")
    text = made.changelog(tmp_path, f"{made.HEAD}\n## Unreleased\n\n- gone\n\n## 0.0.1\n\n- first\n")
    assert text.startswith(made.HEAD)
    assert "gone" not in text
    wanted = ("### Added", "See [a page]", "### Fixed", "- Another", "- An error", "## 0.0.1", "- first")
    order = [text.index(word) for word in wanted]
    assert order == sorted(order)
    assert "- Another.\n  Its second line.\n- An error." in text


@pytest.mark.parametrize("name", ["words.fixed.md", "3-words.broken.md", "3-empty.fixed.md"])
def test_a_fragment_with_another_name_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("" if "empty" in name else "text\n")
    with pytest.raises(ValueError, match=name):
        made.fragments(tmp_path)
