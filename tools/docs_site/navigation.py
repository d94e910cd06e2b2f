"""The menu of the site, read off ``docs/index.md``: its headings are the parts, its links the pages.

A link to ``FOLDER/index.md`` brings the whole folder: first the pages its index links to, then the others. A page that
nothing names is put where its folder is, or at the end of the guides, so a new page is in the menu at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\]\(([\w./-]+\.md)\)")
HOME = "index.md"
REFERENCE = "api.md"  # below it are the pages that are made
LEFT_OVER = "Guides"  # the part for pages that the index does not name


def parts(index: str) -> dict[str, list[str]]:
    """Heading -> the pages that are linked below it, each once."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    title = ""
    for line in index.splitlines():
        if line.startswith("## "):
            title = line[3:].strip()
        for link in LINK.findall(line) if title else ():
            if link not in seen:
                seen.add(link)
                found.setdefault(title, []).append(link)
    return found


def menu(docs: Path, made: dict[str, list[tuple[str, str]]]) -> list[Any]:
    """What mkdocs takes as ``nav``; ``made`` has the generated pages, part of the menu -> (title, address)."""
    left = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    left.remove(HOME)
    tree: list[Any] = [{"Home": HOME}]
    found = parts((docs / HOME).read_text(encoding="utf-8"))
    named = [page for pages in found.values() for page in pages]
    folders = {page.rpartition("/")[0] for page in named if page.endswith("/index.md")}
    extra = [page for page in left if page not in named and page.rpartition("/")[0] not in folders]
    for title, pages in found.items():
        listed = [*pages, *(extra if title == LEFT_OVER else ())]
        entries: list[Any] = []
        for page in listed:
            if page == REFERENCE:
                entries += [page, *({part: [{t: a} for t, a in pages]} for part, pages in made.items())]
            elif page.endswith("/index.md"):
                entries.append({heading(docs / page): [page, *_folder(docs, page)]})
            else:
                entries.append(page.replace("../", "repository/", 1))
        tree.append({title: entries})
    return tree


def _folder(docs: Path, index: str) -> list[str]:
    folder = index.rpartition("/")[0]
    text = (docs / index).read_text(encoding="utf-8")
    order = [f"{folder}/{link}" for link in LINK.findall(text) if "/" not in link]
    every = [p.relative_to(docs).as_posix() for p in sorted((docs / folder).glob("*.md"))]
    return list(dict.fromkeys(page for page in (*order, *every) if page in every and page != index))


def heading(page: Path) -> str:
    """The title of a page."""
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].strip() if found else page.stem
