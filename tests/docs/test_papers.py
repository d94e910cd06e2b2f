"""The papers of the project say what the package says: extras, version, licence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import autojit as aj

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_extra_is_named_where_users_install() -> None:
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `autojit\[([\w-]+)\]`", page, re.MULTILINE))
    assert rows == set(PROJECT["optional-dependencies"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("## Install")[1].split("\n## ")[0]
    assert not [extra for extra in rows if f"`{extra}`" not in readme]


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(\w[\w-]*): (.+)$", text, re.MULTILINE))
    assert found["version"] == PROJECT["version"] == aj.__version__
    assert found["license"] == PROJECT["license"]


def test_the_readme_shows_the_two_commands_before_anything_else_of_make() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^make \w+", text, re.MULTILINE)[:2] == ["make demo", "make test"]
    assert text.index("```python") < text.index("pip install") < text.index("\nmake demo")
