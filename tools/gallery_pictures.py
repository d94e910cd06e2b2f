"""Pictures of what the examples find: one function per example, named as it, for ``tools/make_gallery.py``.

A function draws on a figure what the example handed to ``show`` (``found``), with the example's own functions
(``program``). Its docstring is the text that stands for the picture where it cannot be seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

Found = dict[str, Any]
BLUE, ORANGE, GREY = "#1b6ca8", "#e07b39", "#9a9a9a"


def vae(figure: Any, found: Found, program: Found) -> None:
    """24 handwritten digits drawn by the autoencoder from random codes."""
    _images(figure, found["images"], 4)


def dcgan(figure: Any, found: Found, program: Found) -> None:
    """24 handwritten digits drawn by the generator from random codes."""
    _images(figure, found["images"], 4)


def _images(figure: Any, images: Any, rows: int) -> None:
    """Images side by side in one picture, with a gap of one pixel."""
    columns = len(images) // rows
    low, high = float(images.min()), float(images.max())
    height, width = images.shape[1] + 1, images.shape[2] + 1
    whole = np.full((rows * height - 1, columns * width - 1), np.nan)
    for k, image in enumerate(images[: rows * columns]):
        row, column = divmod(k, columns)
        whole[row * height : (row + 1) * height - 1, column * width : (column + 1) * width - 1] = image
    axes = figure.subplots()
    axes.imshow(whole, cmap="gray_r", vmin=low, vmax=high)
    axes.set_axis_off()


def cnn(figure: Any, found: Found, program: Found) -> None:
    """The twelve unseen digits on which the network is wrong or least sure, each with its answer."""
    import autojit as aj

    with aj.no_grad():
        scores = found["model"](aj.tensor(found["images"])).exp().numpy()
    said, sure = scores.argmax(axis=1), scores.max(axis=1)
    order = np.argsort(np.where(said == found["labels"], sure, sure - 2))[:12]
    for axes, k in zip(figure.subplots(2, 6).flat, order, strict=True):
        axes.imshow(found["images"][k, 0], cmap="gray_r")
        axes.set_title(f"{said[k]} ({sure[k]:.0%})", fontsize=8, color="k" if said[k] == found["labels"][k] else "r")
        axes.set_axis_off()


def pinn(figure: Any, found: Found, program: Found) -> None:
    """The learned field u(t, x) of Burgers' equation, the exact one, and their difference."""
    import autojit as aj

    x, times = np.linspace(-1, 1, 161), np.linspace(0.01, 1, 100)
    exact = np.stack([program["exact"](x, t) for t in times], axis=1)
    at = [aj.tensor(v.reshape(-1, 1).astype(np.float32)) for v in np.meshgrid(x, times, indexing="ij")]
    with aj.no_grad():
        learned = program["solution"](found["net"], *at).numpy().reshape(exact.shape)
    _field_and_error(figure, learned, exact, (0, 1, -1, 1), ("t", "x"))


def pinn_lbfgs(figure: Any, found: Found, program: Found) -> None:
    """The learned solution of Poisson's equation, the exact one, and their difference."""
    import autojit as aj

    x, y = np.meshgrid(np.linspace(0, 1, 81), np.linspace(0, 1, 81))
    exact = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
    with aj.no_grad():
        at = (aj.tensor(v.reshape(-1, 1)) for v in (x, y))
        learned = program["solution"](found["net"], *at).numpy().reshape(exact.shape)
    _field_and_error(figure, learned, exact, (0, 1, 0, 1), ("x", "y"))


def _field_and_error(figure: Any, learned: Any, exact: Any, extent: Any, names: tuple[str, str]) -> None:
    panels = (("learned", learned, "RdBu_r"), ("exact", exact, "RdBu_r"), ("difference", learned - exact, "PuOr"))
    for axes, (title, field, colours) in zip(figure.subplots(1, 3), panels, strict=True):
        limit = float(np.abs(field).max())
        image = axes.imshow(field, extent=extent, origin="lower", aspect="auto", cmap=colours, vmin=-limit, vmax=limit)
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
        figure.colorbar(image, ax=axes)


def gaussian_process(figure: Any, found: Found, program: Found) -> None:
    """Data, the process's prediction with a band of two standard deviations, and the true function."""
    axes = figure.subplots()
    grid, mean, deviation = (np.asarray(found[name]) for name in ("grid", "mean", "deviation"))
    axes.fill_between(grid, mean - 2 * deviation, mean + 2 * deviation, color=BLUE, alpha=0.25, label="two deviations")
    axes.plot(grid, mean, color=BLUE, label="prediction")
    axes.plot(grid, found["truth"], color=ORANGE, ls="--", label="truth")
    axes.plot(found["x"], found["y"], "k.", ms=4, label="data")
    axes.legend(frameon=False, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)


def black_scholes(figure: Any, found: Found, program: Found) -> None:
    """Surfaces over spot price and years to expiry: price, delta, gamma and vega of a call with strike 100."""
    import autojit as aj

    spot, expiry = np.meshgrid(np.linspace(60, 140, 81), np.linspace(0.05, 2, 60))
    fixed = (np.full_like(spot, 100.0), expiry, np.full_like(spot, 0.25), np.full_like(spot, 0.02))
    market = [aj.tensor(v, requires_grad=True) for v in (spot, *fixed)]
    values = program["greeks"](*market)
    for number, name in enumerate(("price", "delta", "gamma", "vega"), start=1):
        axes = figure.add_subplot(1, 4, number, projection="3d")
        axes.plot_surface(spot, expiry, values[name].numpy(), cmap="viridis", linewidth=0, rcount=40, ccount=40)
        axes.set_title(name, y=0.95)
        axes.set(xlabel="spot", ylabel="years")
        axes.tick_params(labelsize=6, pad=-2)


def graph_attention(figure: Any, found: Found, program: Found) -> None:
    """The club's members: colours show the faction found, shapes the true one; the two with a ring were given."""
    import autojit as aj

    with aj.no_grad():
        side = found["model"](found["features"], found["edges"]).softmax(1)[:, 1].numpy()
    edges, faction = found["edges"].numpy(), found["faction"]
    places = spring_layout(edges, len(side))
    axes = figure.subplots()
    for a, b in edges.T:
        axes.plot(*places[[a, b]].T, color=GREY, lw=0.5, zorder=1)
    for member, marker in ((0, "o"), (1, "s")):
        at = places[faction == member]
        axes.scatter(*at.T, c=side[faction == member], vmin=0, vmax=1, cmap="coolwarm", marker=marker, s=70, zorder=2,
                     edgecolors="k", linewidths=0.6)  # fmt: skip
    for k in program["LABELLED"]:
        axes.scatter(*places[k], s=200, facecolors="none", edgecolors="k", linewidths=1.4, zorder=3)
    axes.set_axis_off()


def spring_layout(edges: Any, count: int) -> Any:
    """Places in the plane where friends are near and all others keep apart (Fruchterman and Reingold, 1991)."""
    rng = np.random.default_rng(3)
    places = rng.normal(size=(count, 2))
    joined = np.zeros((count, count))
    joined[edges[0], edges[1]] = 1
    np.fill_diagonal(joined, 0)
    for heat in np.geomspace(0.5, 0.005, 300):
        apart = places[:, None] - places[None]
        distance = np.linalg.norm(apart, axis=-1) + 1e-9
        force = (apart * (0.3 / distance**2 - joined * distance / 0.5)[..., None]).sum(axis=1)
        places = places + force / (np.linalg.norm(force, axis=1, keepdims=True) + 1e-9) * heat
    return places - places.mean(axis=0)


def hmc(figure: Any, found: Found, program: Found) -> None:
    """Samples of the three weights in pairs, with crosses at the true ones."""
    samples, names = found["samples"], "abc"
    pairs = list(itertools.combinations(range(3), 2))
    for axes, (i, j) in zip(figure.subplots(1, 3), pairs, strict=True):
        axes.plot(samples[:, i], samples[:, j], ".", color=BLUE, ms=2, alpha=0.5)
        axes.plot(program["TRUE_WEIGHTS"][i], program["TRUE_WEIGHTS"][j], "+", color=ORANGE, ms=14, mew=2)
        axes.set(xlabel=names[i], ylabel=names[j])
        axes.spines[["top", "right"]].set_visible(False)


def maml(figure: Any, found: Found, program: Found) -> None:
    """Three new waves with ten points each: the network before and after one gradient step."""
    import autojit as aj

    rng, net = np.random.default_rng(5), found["net"]
    grid = np.linspace(-3, 3, 121, dtype=np.float32)[:, None]
    for axes, height, phase in zip(figure.subplots(1, 3, sharey=True), (2.5, 1.2, 2.0), (0.3, 1.5, 2.6), strict=True):
        x = rng.uniform(-3, 3, (10, 1)).astype(np.float32)
        y = (height * np.sin(x - phase)).astype(np.float32)
        weights = dict(net.named_parameters())
        error = lambda w, x=x, y=y: ((aj.func.functional_call(net, w, (aj.tensor(x),)) - aj.tensor(y)) ** 2).mean()
        slopes = aj.func.grad(error)(weights)
        stepped = {name: w - program["INNER_RATE"] * slopes[name] for name, w in weights.items()}
        for given, colour, label in ((weights, GREY, "before"), (stepped, BLUE, "after one step")):
            curve = aj.func.functional_call(net, given, (aj.tensor(grid),)).detach().numpy()
            axes.plot(grid, curve, color=colour, label=label)
        axes.plot(grid, height * np.sin(grid - phase), color=ORANGE, ls="--", label="the wave")
        axes.plot(x, y, "k.", ms=5)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)


def neural_ode(figure: Any, found: Found, program: Found) -> None:
    """The true and the learned spiral from the same start, and beside them the distance between them over time."""
    import autojit as aj

    truth = found["truth"].numpy()[:, 0]
    with aj.no_grad():
        learned = program["Solve"].apply(found["slope"], aj.tensor(truth[:1]), found["times"]).numpy()[:, 0]
    plane, difference = figure.subplots(1, 2)
    plane.plot(*truth.T, color=ORANGE, ls="--", label="truth")
    plane.plot(*learned.T, color=BLUE, label="learned")
    plane.set_aspect("equal")
    plane.legend(frameon=False)
    difference.plot(found["times"], np.linalg.norm(learned - truth, axis=1), color=BLUE)
    difference.set(xlabel="time", ylabel="distance", ylim=(0, None))


def lennard_jones(figure: Any, found: Found, program: Found) -> None:
    """Thirteen atoms in their best arrangement: an icosahedron around one of them."""
    atoms = found["atoms"] - found["atoms"].mean(axis=0)
    axes = figure.add_subplot(projection="3d")
    for a, b in itertools.combinations(atoms, 2):
        if np.linalg.norm(a - b) < 1.3:
            axes.plot(*np.stack([a, b]).T, color=GREY, lw=1)
    axes.scatter(*atoms.T, s=260, c=np.linalg.norm(atoms, axis=1), cmap="viridis", edgecolors="k", depthshade=False)
    axes.set_axis_off()
    axes.set_box_aspect((1, 1, 1), zoom=1.5)


def adaptive_ode(figure: Any, found: Found, program: Found) -> None:
    """Observed numbers of prey and predators (circles), the first guess, and the fitted model."""
    import autojit as aj

    axes = figure.subplots()
    times = np.arange(1, found["times"] + 1)
    start = aj.tensor([0.9, 0.3, 0.15, 0.5], dtype=aj.float64)
    with aj.no_grad():
        observed = program["trajectory"](aj.tensor(program["TRUE_RATES"], dtype=aj.float64), len(times)).numpy()
        fitted = program["trajectory"](found["rates"], len(times)).numpy()
        guessed = program["trajectory"](start, len(times)).numpy()
    for column, (name, colour) in enumerate((("prey", BLUE), ("predators", ORANGE))):
        axes.plot(times, guessed[:, column], color=colour, ls=":", lw=1, label=f"{name}, first guess")
        axes.plot(times, fitted[:, column], color=colour, label=f"{name}, fitted")
        axes.plot(times, observed[:, column], "o", color=colour, ms=4, mfc="none")
    axes.set(xlabel="time")
    axes.legend(frameon=False, fontsize=7, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)


def numba_op(figure: Any, found: Found, program: Found) -> None:
    """Measured speeds of the star, folded into one orbit of the planet, with the fitted curve."""
    import autojit as aj

    period = found["star"]["period"].item()
    phase = found["times"].numpy() % period
    with aj.no_grad():
        turn = aj.linspace(0, period, 200, dtype=aj.float64)
        curve = program["speeds"](turn, found["star"]).numpy()
    axes = figure.subplots()
    axes.plot(phase[::10], found["measured"].numpy()[::10], ".", color=GREY, ms=1.5, label="measured (one of ten)")
    axes.plot(turn.numpy(), curve, color=BLUE, lw=2, label="fitted orbit")
    axes.set(xlabel="days of one turn", ylabel="speed of the star, m/s")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


PICTURES: dict[str, Callable[[Any, Found, Found], None]] = {
    drawn.__name__: drawn
    for drawn in (
        adaptive_ode, black_scholes, cnn, dcgan, gaussian_process, graph_attention, hmc, lennard_jones, maml,
        neural_ode, numba_op, pinn, pinn_lbfgs, vae,
    )
}  # fmt: skip
SIZES = {  # inches, where the picture is no wide one
    "vae": (5.4, 3.6), "dcgan": (5.4, 3.6), "graph_attention": (5.4, 3.6), "lennard_jones": (3.6, 3.6),
}  # fmt: skip
WIDE = (7.2, 2.4)
COLLAGE = (  # rows of the picture of several: width, example, title
    ((1.0, "dcgan", "digits drawn by a GAN"), (2.4, "pinn", "Burgers' equation from its initial values")),
    (
        (1.2, "graph_attention", "a club splits along its friendships"),
        (1.4, "gaussian_process", "a Gaussian process"),
        (0.8, "lennard_jones", "13 atoms at rest"),
    ),
)
