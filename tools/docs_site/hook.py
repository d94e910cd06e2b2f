"""What mkdocs calls: the menu, the pages that are made, and the links that leave ``docs/``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

from tools.docs_site import navigation, reference, repository  # noqa: E402
from tools.docs_site.public_names import pages  # noqa: E402
from tools.make_changelog import changelog  # noqa: E402

DOCS = ROOT / "docs"
WEIGHTS = {"api/": 1.5, "design/": 0.5, "reference/": 0.5, "repository/": 0.25}  # of a hit there; elsewhere 2


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The menu, from ``docs/index.md`` and the pages of the reference."""
    made: dict[str, list[tuple[str, str]]] = {}
    for page in pages():
        made.setdefault(page.menu, []).append((page.title, f"{reference.FOLDER}/{page.slug}.md"))
    config.nav = navigation.menu(DOCS, made)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The reference, and what the pages of ``docs/`` link to outside of it."""
    found = repository.Repository()
    texts: dict[str, str] = {}
    every = list(pages())
    for page, text in reference.written():
        texts[f"{reference.FOLDER}/{page.slug}.md"] = text
    if reference.failures:
        raise PluginError("\n\n".join(reference.failures))
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).as_posix()
        texts[name] = found.page(path.read_text(encoding="utf-8"), name)
    texts["api.md"] += reference.index(every)
    done: set[str] = set()
    while left := found.pages - done:
        for name in sorted(left):
            text = (ROOT / name).read_text(encoding="utf-8")
            if name == "CHANGELOG.md":
                text = changelog(ROOT / "changelog.d", text)  # with the fragments that came since it was written
            texts[f"repository/{name}"] = found.page(text, f"repository/{name}")
        done |= left
    shown = found.sources | reference.sources()
    for name, text in texts.items():
        weight = next((w for folder, w in WEIGHTS.items() if name.startswith(folder)), 2)
        _put(files, config, name, f"---\nsearch:\n  boost: {weight}\n---\n\n{text}")
    for name in sorted(shown):
        page_html = repository.shown(name).replace(
            "/source/style.css", repository.relative("source/style.css", f"source/{name}.html")
        )
        _put(files, config, f"source/{name}.html", page_html)
    _put(files, config, "source/style.css", repository.style())
    return files


def _put(files: Files, config: MkDocsConfig, name: str, text: str) -> None:
    old = files.get_file_from_path(name)
    if old is not None:
        files.remove(old)
    files.append(File.generated(config, name, content=text))
