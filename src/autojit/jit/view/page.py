"""The page: data, script and style in one file, which needs no network; and how it is shown."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import webbrowser
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from autojit.core.errors import ArgumentError
from autojit.jit.view.data import view_data

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

INLINE_HEIGHT = 720  # px, in a notebook
_PARTS = ("view.css", "tree.js", "charts.js", "view.js")


class View(os.PathLike[str]):
    """The page of a step. ``str(view)`` and ``os.fspath(view)`` are its path; notebooks show it inline.

    Attributes:
        html: the whole page.
        path: the file.
    """

    def __init__(self, html: str, path: str) -> None:
        self.html = html
        self.path = path

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<view of a step: {self.path}, {len(self.html) / 1e3:.0f} kB>"

    def open(self) -> bool:
        """Show the file in the web browser; whether there is one."""
        return webbrowser.open(f"file://{os.path.abspath(self.path)}")

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {INLINE_HEIGHT}px; border: 1px solid #8886"
        return f'<iframe title="a compiled step" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def view(function: JitFunction, path: str | os.PathLike[str] | None, assembly: bool) -> View:
    """Write the page of a function's last step; see `JitFunction.view`."""
    html = page(view_data(function, assembly))
    if path is None:
        descriptor, name = tempfile.mkstemp(".html", f"autojit-{function.name.strip('<>')}-")
        os.close(descriptor)
    else:
        name = os.fspath(path)
        if os.path.isdir(name):
            raise ArgumentError("view: the path is a folder", {"path": name}, "give the name of a file: step.html")
    with open(name, "w", encoding="utf-8") as file:
        file.write(html)
    made = View(html, name)
    if path is None and hasattr(sys, "ps1") and sys.stdout.isatty():
        made.open()  # at a prompt: a program and a notebook do what they want with the page
    return made


def page(data: dict[str, Any]) -> str:
    """The page that shows this data. Every text is data: none of it becomes markup or code."""
    folder = files("autojit.jit.view")
    style, *scripts = ((folder / part).read_text(encoding="utf-8") for part in _PARTS)
    # "<" would end the element, and U+2028 the line, in the eyes of some parsers
    told = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    told = told.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    script = "\n".join(scripts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(data['name'])} - autojit</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<div id="app"></div>\n<script type="application/json" id="data">{told}</script>\n'
        f"<script>\n(() => {{\n'use strict';\n{script}}})();\n</script>\n</body>\n</html>\n"
    )
