"""What mkdocs calls: the menu, the pages that are made, and the links that leave ``docs/``.

Examples are run and sources are coloured in as many processes as there are processors.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), str(ROOT / "src")]
sys.path[:0] = PATHS

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
    sys.path[:0] = PATHS  # which mkdocs took back when it had imported this file; processes begin with it
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        return _with_made(files, config, processes)


def _with_made(files: Files, config: MkDocsConfig, processes: ProcessPoolExecutor) -> Files:
    found = repository.Repository()
    texts: dict[str, str] = {}
    every = list(pages())
    written = list(processes.map(reference.written, every))
    failures = [failure for page in written for failure in page.failures]
    if failures:
        raise PluginError("\n\n".join(failures))
    for page, made in zip(every, written, strict=True):
        texts[f"{reference.FOLDER}/{page.slug}.md"] = made.text
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
    shown = sorted(found.sources.union(*(made.sources for made in written)))
    for name, text in texts.items():
        weight = next((w for folder, w in WEIGHTS.items() if name.startswith(folder)), 2)
        _put(files, config, name, f"---\nsearch:\n  boost: {weight}\n---\n\n{text}")
    for name, text in zip(shown, processes.map(repository.shown, shown, chunksize=8), strict=True):
        page_html = text.replace("/source/style.css", repository.relative("source/style.css", f"source/{name}.html"))
        _put(files, config, f"source/{name}.html", page_html)
    _put(files, config, "source/style.css", repository.style())
    return files


def _put(files: Files, config: MkDocsConfig, name: str, text: str) -> None:
    old = files.get_file_from_path(name)
    if old is not None:
        files.remove(old)
    files.append(File.generated(config, name, content=text))
