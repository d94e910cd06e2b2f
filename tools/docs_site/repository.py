"""Files of the repository that pages link to, as pages of the site.

A page of ``docs/`` may link to a source file or to a README outside of it. The first is shown with line numbers, the
second becomes a page; links in it are followed in the same way.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCES = "source"
INLINE = re.compile(r"(\]\()([^)\s]+)(\))")
FENCES = re.compile(r"(^```.*?^```\s*?$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
SHOWN = {".py", ".pyi", ".txt", ".toml", ".yml", ".cff", ""}


class Repository:
    """What the pages need of the repository, as they ask for it."""

    def __init__(self) -> None:
        self.sources: set[str] = set()  # paths of files that are shown
        self.pages: set[str] = set()  # paths of Markdown files outside of docs/

    def page(self, text: str, src: str) -> str:
        """The Markdown of a page at ``src`` with its links out of ``docs/`` turned into links within the site."""
        parts = FENCES.split(text)
        for at in range(0, len(parts), 2):
            parts[at] = INLINE.sub(lambda found: found[1] + self._target(found[2], src) + found[3], parts[at])
        return spaced_lists("".join(parts))

    def _target(self, link: str, src: str) -> str:
        if re.match(r"[a-z]+:|#", link):
            return link
        path, mark, anchor = link.partition("#")
        base = origin(src)
        found = (base.parent / path).resolve()
        if found.is_relative_to(DOCS) and not src.startswith("repository/"):
            return link
        if found.is_relative_to(DOCS):
            site = found.relative_to(DOCS).as_posix()
        else:
            site = self._of_repository(found)
        return relative(site, src) + mark + anchor

    def _of_repository(self, found: Path) -> str:
        if found.is_dir() and (found / "README.md").exists():
            found /= "README.md"
        name = found.relative_to(ROOT).as_posix()
        if found.is_dir() or found.suffix in SHOWN:
            self.sources.add(name)
            return f"{SOURCES}/{name}.html"
        if found.suffix == ".md":
            self.pages.add(name)
            return f"repository/{name}"
        raise LookupError(f"no page shows {name}")


def origin(src: str) -> Path:
    """The file that a page of the site is made from."""
    return ROOT / src.removeprefix("repository/") if src.startswith("repository/") else DOCS / src


def relative(target: str, src: str) -> str:
    """One address of the site as seen from another."""
    return PurePosixPath(os.path.relpath(target, PurePosixPath(src).parent)).as_posix()


def spaced_lists(text: str) -> str:
    """An empty line between a paragraph and a list, which GitHub's Markdown does without and Python's does not."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        item = re.match(r"([-*]|\d+\.) ", line)
        if item and not fenced and lines and lines[-1].strip() and not re.match(r"([-*]|\d+\.) |  ", lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def shown(name: str) -> str:
    """A file as a page of its own, each line with an anchor; a folder as the list of what is in it."""
    path = ROOT / name
    if path.is_dir():
        kept = [p for p in sorted(path.iterdir()) if p.suffix in SHOWN | {".md"} and p.is_file()]
        rows = [f'<a href="{p.name}.html">{html.escape(p.name)}</a>' for p in kept if p.suffix == ".py"]
        return WHOLE.format(title=html.escape(name), body="<p>" + "<br>".join(rows) + "</p>")
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(name)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(linenos="table", lineanchors="L", anchorlinenos=True)
    body = highlight(path.read_text(encoding="utf-8"), lexer, formatter)
    body = re.sub(r'(name|id|href)="(#?)L-(\d+)"', r'\1="\2L\3"', body)
    return WHOLE.format(title=html.escape(name), body=body)


def style() -> str:
    """The colours of the shown files, light and dark."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    return f"{PLAIN}\n{light}\n@media (prefers-color-scheme: dark) {{\n{DARK}\n{dark}\n}}\n"


PLAIN = """body { margin: 1rem; font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.1rem; }
pre { margin: 0; font: 13px/1.45 ui-monospace, monospace; }
.linenos { padding-right: 1em; text-align: right; user-select: none; }
.linenos a, .linenos span { color: #888; text-decoration: none; }
.highlighttable { border-spacing: 0; width: 100%; }
.code { overflow-x: auto; }
:target { background: #fff3bf; }
.highlight, .highlight pre { background: transparent !important; }"""
DARK = """body { background: #1e2129; color: #e2e4e9; }
a { color: #8ab4f8; }
:target { background: #4d4320; }"""
WHOLE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>{title}</title><link rel="stylesheet" href="/source/style.css"></head>
<body><h1>{title}</h1>
{body}
</body></html>
"""
