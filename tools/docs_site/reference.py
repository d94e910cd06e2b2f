"""The pages of the reference as Markdown: an entry has signatures, text, an example that was run, and its source."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, NamedTuple

from tools.docs_site import arguments, entries, example_book
from tools.docs_site.public_names import Page, base_of, names_of

FOLDER = "api"
SOURCES = "source"
HEADINGS = {"Tensor methods": "Tensor methods: ", "Layers": "Layers: ", "nn.functional": "nn.functional: "}


def space_of(prefix: str) -> Any:
    """The module or class that a prefix stands for."""
    import autojit
    from autojit import nn

    short = {"aj": autojit, "nn": nn, "F": nn.functional, "Tensor": autojit.Tensor,
             "nn.Module": nn.Module, "Optimizer": autojit.optim.Optimizer, "step": autojit.jit.JitFunction}  # fmt: skip
    if prefix in short:  # "step" stands for any function that jit returned
        return short[prefix]
    path = {"lr_scheduler": "optim.lr_scheduler", "optim": "optim"}.get(prefix, prefix.removeprefix("aj."))
    return importlib.import_module(f"autojit.{path}")


class Written(NamedTuple):
    """A page's text, the files that it links to, and what its examples that fail say."""

    text: str
    sources: set[str]
    failures: list[str]


def written(page: Page) -> Written:
    """A page of the reference, its examples run."""
    _sources.clear()
    _failures.clear()
    text = page_text(page)
    return Written(text, set(_sources), list(_failures))


def page_text(page: Page) -> str:
    """A page: its title, then an entry per name, an in-place form with its function."""
    space = space_of(page.prefix)
    every = set(names_of(space))
    lines = [f"# {HEADINGS.get(page.menu, '')}{page.title}", ""]
    module_doc = inspect.getdoc(space) if inspect.ismodule(space) and page.menu == "Packages" else None
    if module_doc:
        lines += [entries.markdown(module_doc), ""]
    for name in page.names:
        base = base_of(name, every)
        if base == name:
            lines += entry(page, name, [n for n in page.names if n == f"{name}_"], one=len(page.names) == 1)
    return "\n".join(lines)


def entry(page: Page, name: str, forms: list[str], one: bool) -> list[str]:
    """The entry of one name."""
    space = space_of(page.prefix)
    value = attribute(space, name)
    lines = [] if one else [f"## {name} {{ #{name} }}", ""]
    if "_" in name.strip("_"):  # names are indexed whole: this is how "cross entropy" finds cross_entropy
        lines += [f"<span hidden>{name.strip('_').replace('_', ' ')}</span>", ""]
    calls = [s for form in (name, *forms) for s in entries.signatures(page.prefix, form, attribute(space, form))]
    text = entries.text_of(name, value, name)
    lines += ["```python", *calls, "```", "", text, "", *arguments.described(page.prefix, value, text)]
    shown = [example_book.example(page.prefix, form, attribute(space, form), name) for form in (name, *forms)]
    for found in shown:
        if found is not None:
            lines += ["```pycon", _ran(page, name, found), "```", ""]
    lines += _source(page, name, value)
    if isinstance(value, type) and value not in with_pages():
        lines += members(value, page)
    return lines


def _ran(page: Page, name: str, found: example_book.Example) -> str:
    try:
        return example_book.session(found)
    except Exception as error:
        _failures.append(f"the example of {page.prefix}.{name} fails: {type(error).__name__}: {error}\n{found.code}")
        return found.code


def attribute(space: Any, name: str) -> Any:
    """The attribute itself, for properties of a class."""
    if inspect.isclass(space):
        found = inspect.getattr_static(space, name)
        return found if isinstance(found, property) else getattr(space, name)
    return getattr(space, name)


_sources: set[str] = set()  # of the page that is being written
_failures: list[str] = []


def _source(page: Page, name: str, value: Any) -> list[str]:
    found = entries.source_of(name, value)
    if found is None:
        return []
    file, line = found
    path = file.relative_to(entries.ROOT).as_posix()
    _sources.add(path)
    up = "../" * (1 + page.slug.count("/"))
    return [f"Source: [{path.removeprefix('src/')}, line {line}]({up}{SOURCES}/{path}.html#L{line})", ""]


def with_pages() -> set[type]:
    """Classes whose methods have a page of their own."""
    return {space_of(prefix) for prefix in ("Tensor", "nn.Module", "Optimizer", "step")}


def members(cls: type, page: Page) -> list[str]:
    """The methods and properties a class defines itself or inherits from a class that is not documented."""
    lines: list[str] = []
    for name in _own(cls):
        value = inspect.getattr_static(cls, name)
        value = value if isinstance(value, property) else getattr(cls, name)
        doc = inspect.getdoc(value) or ""
        if not doc or not (isinstance(value, property) or inspect.isroutine(value)):
            continue
        signature = entries.signatures("", name, value)[0].removeprefix(".").replace("\n", " ")
        text = entries.markdown(doc).split("\n\n")[0].replace("\n", " ")
        lines.append(f"- `{' '.join(signature.split())}`: {text}")
    return ["**Methods and properties**", "", *lines, ""] if lines else []


def _own(cls: type) -> list[str]:
    """The public names that a class adds to the documented class it is derived from."""
    from autojit import distributions, nn, optim
    from autojit.optim import lr_scheduler
    from autojit.utils import data

    documented = (nn.Module, optim.Optimizer, lr_scheduler.LRScheduler, data.Dataset, distributions.Distribution,
                  distributions.Transform, BaseException, tuple, dict)  # fmt: skip
    bases = [base for base in documented if issubclass(cls, base) and cls is not base]
    found = {n for c in cls.__mro__ if c.__module__.startswith("autojit") for n in vars(c) if not n.startswith("_")}
    return sorted(n for n in found - {"forward", "training"} if not any(hasattr(base, n) for base in bases))


def index(all_pages: list[Page]) -> str:
    """What is on which page: the end of ``docs/api.md``."""
    lines: list[str] = []
    menu = ""
    for page in all_pages:
        if page.menu != menu:
            menu = page.menu
            lines += ["", f"## {menu}", ""]
        address = f"{FOLDER}/{page.slug}.md"
        names = ", ".join(f"[{n}]({address}#{n})" for n in page.names if base_of(n, set(page.names)) == n)
        lines.append(f"- [{page.title}]({address})" + (f": {names}" if len(page.names) > 1 else ""))
    return "\n".join(lines) + "\n"
