"""Run the examples and draw what they find: docs/gallery.md, a curve and, for most, a picture of the result.

    python tools/make_gallery.py [EXAMPLE ...]      # default: all; needs matplotlib, and torch for the differences

The text of an entry is the example's docstring. The curve is what its ``main`` returns, at full size, compiled; where
torch is installed the same program runs with its imports changed, and how far the two are apart is drawn below.
The picture is drawn by ``gallery_pictures.py`` of what the example handed to ``show``.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

from tools.gallery_pictures import COLLAGE, PICTURES, SIZES, WIDE, Found

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
    comparison, setup = load(ROOT / "examples" / "_torch.py"), importlib.import_module("_setup")
    names = sys.argv[1:] or sorted(path.stem for path in (ROOT / "examples").glob("[a-z]*.py"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept: dict[str, tuple[Found, Found]] = {}
    for name in names:
        curves = {"autojit": comparison.curve(name, "autojit")[0]}
        found = dict(setup.results)
        if name in PICTURES:
            kept[name] = (found, comparison.load(name))
            picture(name, *kept[name], FOLDER / f"{name}.png")
        if "text" in found:
            (FOLDER / f"{name}.txt").write_text(found["text"] + "\n", encoding="utf-8")
        if name not in comparison.OWN and importlib.util.find_spec("torch") is not None:
            curves["torch"] = comparison.curve(name, "torch", "--eager")[0]
        draw(name, curves, FOLDER / f"{name}.svg")
        print(f"{name}: {', '.join(f'{key} {len(curve)} values' for key, curve in curves.items())}", flush=True)
    if {name for row in COLLAGE for _, name, _ in row} <= set(kept):
        collage(kept, FOLDER / "results.png")
    (ROOT / "docs" / "gallery.md").write_text(page(), encoding="utf-8")


def blank(size: tuple[float, float]) -> Any:
    """An empty figure, in inches, for a picture of pixels."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"font.size": 8})
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout="constrained", dpi=100)


def picture(name: str, found: Found, program: Found, target: Path) -> None:
    """The result of one example."""
    figure = blank(SIZES.get(name, WIDE))
    PICTURES[name](figure, found, program)
    write(figure, target)


def collage(kept: dict[str, tuple[Found, Found]], target: Path) -> None:
    """The results of several examples side by side."""
    figure = blank((10.8, 5.6))
    for part, row in zip(figure.subfigures(len(COLLAGE), 1, hspace=0.05), COLLAGE, strict=True):
        places = part.subfigures(1, len(row), width_ratios=[width for width, _, _ in row], wspace=0.02)
        for place, (_, name, title) in zip(places, row, strict=True):
            place.suptitle(title, fontsize=9, fontweight="bold")
            PICTURES[name](place, *kept[name])
    write(figure, target)


def write(figure: Any, target: Path) -> None:
    """A PNG of few colours."""
    from matplotlib import pyplot
    from PIL import Image

    figure.savefig(target)
    pyplot.close(figure)
    Image.open(target).convert("RGB").quantize(200).save(target, optimize=True)


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

    heights = [3, 1.2] if "torch" in curves else [1]
    figure, grid = pyplot.subplots(len(heights), 1, figsize=(3.6, 0.8 + 0.42 * sum(heights)), height_ratios=heights,
                                   sharex=True, layout="constrained", squeeze=False)  # fmt: skip
    axes = grid[0, 0]
    axes.plot(*thinned(np.asarray(curves["autojit"], np.float64)), color="#1b6ca8", lw=1.4)
    least, greatest = float(np.min(curves["autojit"])), float(np.max(curves["autojit"]))
    if least > 0 and greatest > LOGARITHMIC * least:
        axes.set_yscale("log")
    axes.set(ylabel=LABELS.get(name, "loss"))
    if "torch" in curves:
        draw_difference(grid[1, 0], *(np.asarray(curves[key], np.float64) for key in ("autojit", "torch")))
    for one in grid[:, 0]:
        one.spines[["top", "right"]].set_visible(False)
    grid[-1, 0].set(xlabel="round" if name == "actor_critic" else "step")
    figure.savefig(target, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    target.write_text(smaller(target.read_text(encoding="utf-8")), encoding="utf-8")


def draw_difference(axes: Any, ours: Any, theirs: Any) -> None:
    """How far torch's curve is from ours, relative to the greatest value; 1e-9 stands for less."""
    length = min(len(ours), len(theirs))
    apart = np.abs(ours[:length] - theirs[:length]) / np.abs(theirs).max()
    axes.plot(*thinned(np.maximum(apart, 1e-9)), color="#e07b39", lw=1.0)
    axes.set(yscale="log", ylabel="from torch", ylim=(5e-10, 2), yticks=(1e-9, 1e-6, 1e-3, 1))


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
        name = path.stem
        source = ROOT / "examples" / f"{name}.py"
        title, usage, *text = described(source)
        lines += [f"## {title}", ""]
        if (FOLDER / f"{name}.png").exists():
            lines += [f"![{described_picture(name)}](gallery/{name}.png)", ""]
        lines += [*text, ""]
        if (FOLDER / f"{name}.txt").exists():
            written = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
            lines += ["The continuation that it writes:", "", "```text", written.strip(), "```", ""]
        lines += [f"![{name}: {LABELS.get(name, 'loss')} at each step](gallery/{name}.svg)", ""]
        lines += [f"[examples/{source.name}](../examples/{source.name}): `{usage}`", ""]
    return "\n".join(lines)


HEAD = """`make gallery` makes this page. It runs each program of `examples/`, compiled, and shows what it finds and its
curve. Below the curve is its distance from the curve of the same file under torch, with only the imports changed,
relative to the greatest value. Where training amplifies rounding, the two curves drift apart.
`python examples/_torch.py` prints the distances."""


def described_picture(name: str) -> str:
    """The text that stands for a picture."""
    return (PICTURES[name].__doc__ or "").strip().rstrip(".")


def described(source: Path) -> list[str]:
    """The parts of an example's docstring: its first sentence, the command line, the rest as paragraphs."""
    docstring = source.read_text(encoding="utf-8").split('"""')[1]
    title, usage, *text = (part.strip() for part in docstring.split("\n\n"))
    return [title.rstrip("."), usage.splitlines()[0], *(paragraph.replace("``", "`") for paragraph in text)]


if __name__ == "__main__":
    main()
