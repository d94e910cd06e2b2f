"""Run the examples and draw their curves: docs/gallery.md with one small SVG per example.

    python tools/make_gallery.py [EXAMPLE ...]      # default: all; needs matplotlib, and torch for the dashed curves

The text of an entry is the example's docstring. The curve is what its ``main`` returns, at full size, compiled; where
torch is installed the same program runs with its imports changed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "gallery"
LABELS = {  # of what main returns, where it is no loss
    "actor_critic": "moves balanced", "hmc": "log density", "black_scholes": "mean of price and Greeks",
    "lennard_jones": "energy of each start", "leapfrog": "distance from target",
}  # fmt: skip
POINTS = 150  # drawn of a curve
LOGARITHMIC = 30.0  # the ratio of greatest to least from which the axis is


def main() -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    comparison = load(ROOT / "examples" / "_torch.py")
    names = sys.argv[1:] or sorted(path.stem for path in (ROOT / "examples").glob("[a-z]*.py"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        curves = {"autojit": comparison.curve(name, "autojit")[0]}
        if name not in comparison.OWN and importlib.util.find_spec("torch") is not None:
            curves["torch"] = comparison.curve(name, "torch", "--eager")[0]
        draw(name, curves, FOLDER / f"{name}.svg")
        print(f"{name}: {', '.join(f'{key} {len(curve)} values' for key, curve in curves.items())}", flush=True)
    (ROOT / "docs" / "gallery.md").write_text(page(), encoding="utf-8")


def load(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(name: str, curves: dict[str, Any], target: Path) -> None:
    """One small plot; thinned by means over equal stretches."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 8, "path.simplify": True})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(3.6, 1.9), layout="constrained")
    styles = {"autojit": {"color": "#1b6ca8", "lw": 1.6}, "torch": {"color": "#e07b39", "lw": 1.0, "ls": "--"}}
    for key, curve in curves.items():
        places, values = thinned(np.asarray(curve, np.float64))
        axes.plot(places, values, label=key, **styles[key])
    least = min(float(np.min(c)) for c in curves.values())
    greatest = max(float(np.max(c)) for c in curves.values())
    if least > 0 and greatest > LOGARITHMIC * least:
        axes.set_yscale("log")
    axes.set(xlabel="round" if name == "actor_critic" else "step", ylabel=LABELS.get(name, "loss"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(target, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    target.write_text(smaller(target.read_text(encoding="utf-8")), encoding="utf-8")


def smaller(svg: str) -> str:
    """The same picture with coordinates to a tenth of a point, without metadata."""
    svg = re.sub(r"<metadata>.*?</metadata>\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found.group()):.1f}".removesuffix(".0"), svg)
    return "\n".join(line.strip() for line in svg.splitlines()) + "\n"


def thinned(curve: Any) -> tuple[Any, Any]:
    """At most ``POINTS`` means of equally long stretches, and where those begin."""
    length = -(-len(curve) // POINTS)
    starts = np.arange(0, len(curve), length)
    return starts, np.array([curve[k : k + length].mean() for k in starts])


def page() -> str:
    """The gallery: title, picture, text and command of every example that has been drawn."""
    lines = ["# Gallery", "", HEAD, ""]
    for path in sorted(FOLDER.glob("*.svg")):
        source = ROOT / "examples" / f"{path.stem}.py"
        title, usage, *text = described(source)
        lines += [f"## {title}", "", f"![{path.stem}](gallery/{path.name})", "", *text, ""]
        lines += [f"[examples/{source.name}](../examples/{source.name}): `{usage}`", ""]
    return "\n".join(lines)


HEAD = """Made by `python tools/make_gallery.py`. Solid: the program of `examples/`, compiled. Dashed: the same file
under torch, its imports changed and nothing else; `python examples/_torch.py` prints how far the two are apart."""


def described(source: Path) -> list[str]:
    """The parts of an example's docstring: its first sentence, the command line, the rest as paragraphs."""
    docstring = source.read_text(encoding="utf-8").split('"""')[1]
    title, usage, *text = (part.strip() for part in docstring.split("\n\n"))
    return [title.rstrip("."), usage.splitlines()[0], *(paragraph.replace("``", "`") for paragraph in text)]


if __name__ == "__main__":
    main()
