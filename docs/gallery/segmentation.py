"""Per-pixel uncertainty: a deep ensemble of U-Nets on striped cells, and cells it never saw.

Every image has two round cells. Cells with horizontal stripes are one class, with vertical stripes
another, and whoever drew the labels has an unsteady hand: the border wobbles by a pixel or so.
Which side of it a pixel falls on is chance, so more labels would not help: aleatoric. What a cell
with another pattern is, no label has ever said: epistemic.

    python docs/gallery/segmentation.py [--out FILE]
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.special import entr, ndtr
from sklearn.metrics import roc_auc_score

import posterax as px

SIZE = 32
SEEN = ("horizontal", "vertical")  # the label of a kind is its place here, plus one
UNSEEN = ("diagonal", "dots", "rings", "plain")
WOBBLE = 1.0  # pixels: the standard deviation of the labels' border
SMOOTH = 2.0  # pixels along which the hand goes astray in the same direction


class Scenes(NamedTuple):
    """Images, the labels someone drew on them, and what nobody but their maker knows."""

    images: np.ndarray  # (N, SIZE, SIZE), uint8
    labels: np.ndarray  # (N, SIZE, SIZE): 0 background, 1 horizontal, 2 vertical
    truth: np.ndarray  # the same without the wobble; −1 on cells of an unseen kind
    distance: np.ndarray  # pixels from the border of the nearest cell, negative inside of it

    @property
    def noise(self) -> np.ndarray:
        """The entropy of each pixel's label in nats: a pixel is in with probability Φ(−d / σ)."""
        inside = ndtr(-self.distance / WOBBLE)
        return entr(inside) + entr(1 - inside)


def pattern(kind: str, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The brightness of a cell at offsets (x, y) from its centre, with random phases."""
    first, second = rng.uniform(0, 2 * np.pi, 2)
    across = (x + y * rng.choice((-1, 1))) / np.sqrt(2)
    turn = 2 * np.pi / 4  # a period of 4 pixels
    wave = {
        "horizontal": np.sin(turn * y + first),
        "vertical": np.sin(turn * x + first),
        "diagonal": np.sin(turn * across + first),
        "dots": np.sin(turn * x + first) * np.sin(turn * y + second),
        "rings": np.sin(turn * np.hypot(x, y) + first),
        "plain": np.zeros_like(x),
    }
    return 0.55 + 0.4 * wave[kind]


def scenes(n: int, kinds: Sequence[str], seed: int | Sequence[int]) -> Scenes:
    """``n`` images with two cells each, their kinds drawn from ``kinds``."""
    rng = np.random.default_rng(seed)
    made = [scene(rng.choice(kinds, 2), rng) for _ in range(n)]
    return Scenes(*(np.stack(part) for part in zip(*made, strict=True)))


def scene(kinds: Sequence[str], rng: np.random.Generator) -> Scenes:
    """One image with two cells of these kinds, which do not touch."""
    while True:
        radii = rng.uniform(4.5, 7, 2)
        centres = rng.uniform(radii + 1, SIZE - 2 - radii, (2, 2))  # rows: y and x
        if np.linalg.norm(centres[:, 0] - centres[:, 1]) > radii.sum() + 3:
            break
    rows, columns = np.mgrid[:SIZE, :SIZE].astype(float)
    image = np.full((SIZE, SIZE), 0.1)
    nearest, owner = np.full((SIZE, SIZE), np.inf), np.zeros((SIZE, SIZE), int)
    for kind, radius, (row, column) in zip(kinds, radii, centres.T, strict=True):
        y, x = rows - row, columns - column
        distance = np.hypot(x, y) - radius
        cover = np.clip(0.5 - distance, 0, 1)  # of the pixel by the cell
        image += cover * (pattern(kind, x, y, rng) - image)
        label = SEEN.index(kind) + 1 if kind in SEEN else -1
        owner = np.where(distance < nearest, label, owner)
        nearest = np.minimum(distance, nearest)
    image += 0.05 * rng.normal(size=image.shape)
    hand = gaussian_filter(rng.normal(size=image.shape), SMOOTH, mode="wrap")
    hand *= 2 * np.sqrt(np.pi) * SMOOTH  # smoothing took this factor off a deviation of 1
    return Scenes(
        (255 * np.clip(image, 0, 1)).astype(np.uint8),
        np.where(nearest + WOBBLE * hand < 0, owner, 0),
        np.where(nearest < 0, owner, 0),
        nearest,
    )


def fit(
    seed: int = 0, *, method: px.infer.Method | None = None, n: int = 1000, steps: int = 600
) -> px.posteriors.Posterior:
    """The posterior of a small U-Net given ``n`` labelled images of the seen kinds."""
    train = scenes(n, SEEN, (seed, 0))
    network = px.networks.UNet(1, 1 + len(SEEN), width=8, levels=1, activation="silu", key=seed)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Categorical())
    # networks from different starts see the same cells alike, and strange ones each in its own way
    method = method or px.DeepEnsemble(members=5, learning_rate=5e-3)
    return px.fit(model, (train.images, train.labels), method, steps=steps, batch_size=4, key=seed)


def held_out(seed: int = 0, n: int = 100) -> dict[str, Scenes]:
    """Test images of the seen kinds and of each unseen one, which no setting was chosen on."""
    kinds = {"seen": SEEN} | {kind: (kind,) for kind in UNSEEN}
    return {name: scenes(n, k, (seed, 1 + i)) for i, (name, k) in enumerate(kinds.items())}


def scores(posterior: px.posteriors.Posterior, test: dict[str, Scenes]) -> dict[str, float]:
    """Both maps on the pixels they should tell apart; an AUROC is of unseen cells against seen."""
    found = {name: posterior.predict(part.images, key=1) for name, part in test.items()}
    seen, predictive = test["seen"], found["seen"]
    places = {
        "border": np.abs(seen.distance) < 1,
        "interior": seen.distance < -3,
        "background": seen.distance > 3,
    }
    right = (predictive.mode == seen.truth)[places["interior"]]
    match = np.corrcoef(predictive.aleatoric.ravel(), seen.noise.ravel())[0, 1]
    table = {"interior, right class": right.mean()}
    table |= {f"aleatoric, {name}": predictive.aleatoric[at].mean() for name, at in places.items()}
    table |= {"aleatoric and label noise, correlation": match}
    cells = {name: found[name].epistemic[part.distance < 0] for name, part in test.items()}
    table |= {f"epistemic, {name}": values.mean() for name, values in cells.items()}
    cells["all unseen"] = np.concatenate([cells[kind] for kind in UNSEEN])
    for name in (*UNSEEN, "all unseen"):
        both = np.concatenate([cells[name], cells["seen"]])
        table[f"AUROC, {name}"] = roc_auc_score(np.arange(len(both)) < len(cells[name]), both)
    return {name: float(value) for name, value in table.items()}


def picture(posterior: px.posteriors.Posterior, path: Path, seed: int = 0) -> None:
    """Save three test images, with no, one and two unseen cells, and what the posterior says."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = {
        "both seen": ("horizontal", "vertical"),
        "one unseen": ("vertical", "dots"),
        "both unseen": ("diagonal", "plain"),
    }
    rng = np.random.default_rng((seed, 100))
    made = [scene(kinds, rng) for kinds in rows.values()]
    shown = Scenes(*(np.stack(part) for part in zip(*made, strict=True)))
    predictive = posterior.predict(shown.images, key=1)
    names = {"background": "#EDEDED", "horizontal": "#0072B2", "vertical": "#E69F00"}
    names["unseen"] = "#8C8C8C"  # cells without a label are drawn where they are
    classes = {"cmap": ListedColormap(list(names.values())), "vmin": 0, "vmax": 3}
    nats = {"cmap": "magma", "vmin": 0, "vmax": np.log(2)}  # at most a toss between two classes
    columns = {
        "image": (shown.images, {"cmap": "gray", "vmin": 0, "vmax": 255}),
        "label": (np.where(shown.truth < 0, 3, np.maximum(shown.labels, 0)), classes),
        "prediction": (predictive.mode, classes),
        "aleatoric": (predictive.aleatoric, nats),
        "epistemic": (predictive.epistemic, nats),
    }
    figure = Figure(figsize=(9.2, 6.1))
    grid = figure.add_gridspec(
        4, 5, height_ratios=(1, 1, 1, 0.06), left=0.035, right=0.985, top=0.95, bottom=0.085,
        wspace=0.06, hspace=0.07,
    )  # fmt: skip
    for j, (title, (values, look)) in enumerate(columns.items()):
        for i, name in enumerate(rows):
            axes = figure.add_subplot(grid[i, j], xticks=(), yticks=())
            axes.spines[:].set_visible(False)
            drawn = axes.imshow(values[i], interpolation="nearest", **look)
            if title == "label":  # where the hand should have gone
                axes.contour(shown.distance[i], (0,), colors="#111111", linewidths=1)
            if i == 0:
                axes.set_title(title)
            if j == 0:
                axes.set_ylabel(name, fontsize="large")
        if look is nats:
            bar = figure.colorbar(
                drawn, cax=figure.add_subplot(grid[3, j]), orientation="horizontal",
                ticks=(0, 0.3, 0.6), label="nats", extend="max", extendfrac=0.03,
            )  # fmt: skip
            bar.outline.set_visible(False)
    below = figure.add_subplot(grid[3, 1:3])
    below.axis("off")
    below.legend(
        handles=[
            *(Patch(color=color, label=name) for name, color in names.items()),
            Line2D([], [], color="#111111", linewidth=1, label="true border"),
        ],
        loc="upper center", bbox_to_anchor=(0.42, 1.6), ncols=3, frameon=False, handlelength=1.2,
        columnspacing=1.2, fontsize="small",
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Fit, print the scores, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--seed", type=int, default=0, help="of the networks and of all images")
    options = parser.parse_args()
    began = time.perf_counter()
    posterior = fit(options.seed)
    print(f"fitted in {time.perf_counter() - began:.0f} s")
    for name, score in scores(posterior, held_out(options.seed)).items():
        print(f"{name:<40}{score:7.3f}")
    picture(posterior, options.out, options.seed)
    print(f"in {time.perf_counter() - began:.0f} s: {options.out.name}")


if __name__ == "__main__":
    main()
