"""Gather the fragments of changelog.d/ into CHANGELOG.md.

    python tools/make_changelog.py [--release VERSION]

Without a version they are under "Unreleased"; with one they are deleted.

A fragment is ``<issue>-<few-words>.<kind>.md``. Sections are in the order of ``KINDS``, entries in that of the issues,
the newest first. What earlier releases wrote stays as it is.
"""

from __future__ import annotations

import argparse
import datetime
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"added": "Added", "changed": "Changed", "removed": "Removed", "faster": "Faster", "fixed": "Fixed"}
NAME = re.compile(r"(?P<issue>\d+)-(?P<words>[\w.-]+)\.(?P<kind>\w+)\.md")
UNRELEASED = "## Unreleased"
HEAD = """# Changelog

What users notice, newest version first. Written by `make changelog` from the fragments in `changelog.d`.
"""


class Fragment(NamedTuple):
    """One change: the issue it belongs to, its kind, and its text on one line."""

    issue: int
    words: str
    kind: str
    text: str


def fragments(folder: Path) -> list[Fragment]:
    """All of them, newest issue first.

    Raises:
        ValueError: a file's name does not say issue, words and a known kind, or it has no text.
    """
    found = []
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        name = NAME.fullmatch(path.name)
        text = path.read_text(encoding="utf-8").strip()
        if name is None or name["kind"] not in KINDS or not text:
            raise ValueError(f"{path}: not <issue>-<few-words>.<kind>.md with kind one of {', '.join(KINDS)}, or empty")
        found.append(Fragment(int(name["issue"]), name["words"], name["kind"], text))
    return sorted(found, key=lambda f: (-f.issue, f.words))


def section(title: str, found: list[Fragment]) -> str:
    """One version: its changes by kind."""
    lines = [title]
    for kind, heading in KINDS.items():
        mine = [fragment for fragment in found if fragment.kind == kind]
        if mine:
            lines += ["", f"### {heading}", "", *(item(fragment.text) for fragment in mine)]
    return "\n".join(lines) + "\n"


def item(text: str) -> str:
    """A fragment as an entry of a list: its paragraphs belong to the entry, links are those of the root."""
    return "- " + text.replace("](../", "](").replace("\n", "\n  ").replace("\n  \n", "\n\n")


def released(old: str) -> str:
    """The sections of the versions that are out."""
    parts = re.split(r"^(?=## )", old, flags=re.MULTILINE)[1:]
    return "\n".join(part for part in parts if not part.startswith(UNRELEASED))


def changelog(folder: Path, old: str, title: str = UNRELEASED) -> str:
    """The whole file."""
    found = fragments(folder)
    parts = [HEAD, *([section(title, found)] if found else []), *([released(old)] if released(old) else [])]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Gather the fragments of changelog.d/ into CHANGELOG.md.")
    parser.add_argument("--release", metavar="VERSION", help="the version they belong to; deletes them")
    options = parser.parse_args()
    folder, target = ROOT / "changelog.d", ROOT / "CHANGELOG.md"
    old = target.read_text(encoding="utf-8") if target.exists() else ""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    title = f"## {options.release} ({today})" if options.release else UNRELEASED
    target.write_text(changelog(folder, old, title), encoding="utf-8")
    if options.release:
        for path in folder.glob("*.*.md"):
            path.unlink()


if __name__ == "__main__":
    main()
