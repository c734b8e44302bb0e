"""Pictures with what a posterior thinks they show."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit
from .._util.checks import fraction, whole_number
from ..metrics.inputs import class_labels
from ..predictive import Predictive
from .style import BLUE, DATA, HATCHED, MEAN, TOTAL, Axes, annotate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 60  # pictures on one page


def images(
    axes: "Axes | Figure",
    x: ArrayLike,
    predictive: Predictive,
    y: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    top: int = 3,
    level: float = 0.9,
    columns: int | None = None,
    shape: tuple[int, ...] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw pictures, each over its most probable classes as bars with intervals.

    A bar is the mean probability over the posterior, its whisker the central interval of that
    probability over the posterior: short where all networks agree, long where they do not. With
    ``y``, a wrong picture has a cross, the right class in words, a thick dashed frame and hatched
    bars; a right one a tick.

    Args:
        axes: where to draw: axes, which the grid fills, or a figure, which gets such axes.
        x: pictures (N, H, W), with a channel or three of them first or last, or flat.
        predictive: of their classes.
        y: labels 0 … K−1.
        classes: names of the classes (default: their numbers).
        top: how many classes a picture shows.
        level: of the whiskers.
        columns: of the grid (default: what fills the axes).
        shape: of one picture, where ``x`` is flat and not square.
        title: above the grid.

    Returns:
        The axes that hold the grid.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> x = np.random.default_rng(0).uniform(size=(2, 64)).astype("float32")
        >>> network = px.networks.MLP(64, 3, (8,), key=0)
        >>> model = px.Model(network, likelihood=px.likelihoods.Categorical())
        >>> predictive = px.prior_posterior(model, x).predict(x, key=0)
        >>> axes = px.plot.images(Figure(), x, predictive, classes=["ant", "bee", "cat"])
        >>> len(axes.child_axes)  # a picture and its bars, twice
        4
    """
    from matplotlib.figure import FigureBase

    if not isinstance(predictive, Predictive) or predictive.kind != "classification":
        raise ValueError("images draws a Predictive of classes, and pictures they belong to")
    mean = predictive.mean
    if mean.ndim != 2:
        raise ValueError(f"images needs one prediction for each picture, got {mean.shape}")
    pictures, count = _pictures(x, len(mean), shape), mean.shape[1]
    top = min(whole_number("top", top), count)
    names = [str(name) for name in (range(count) if classes is None else classes)]
    if isinstance(classes, str) or len(names) != count:
        raise ValueError(f"classes must be {count} names, one for each class, got {classes!r}")
    labels = None if y is None else class_labels(y, mean)
    low, high = predictive.interval(fraction("level", level))
    n = len(pictures)
    page = axes.subplots() if isinstance(axes, FigureBase) else axes
    columns = _columns(page, n) if columns is None else min(n, whole_number("columns", columns))
    rows = -(-n // columns)
    page.set_axis_off()
    width, height = 1 / columns, 1 / rows
    for i in range(n):
        left, bottom = (i % columns) * width, 1 - (i // columns + 1) * height
        best = np.argsort(-mean[i], kind="stable")[:top]
        label = best[0] if labels is None else labels[i]
        wrong = bool(best[0] != label)
        box = (left + 0.1 * width, bottom + 0.41 * height, 0.8 * width, 0.47 * height)
        mark = "" if labels is None else "✗ " if wrong else "✓ "
        heading = f"{mark}{names[best[0]]}" + (f", is {names[label]}" if wrong else "")
        _picture(page.inset_axes(box), pictures[i], heading, wrong)
        box = (left + 0.3 * width, bottom + 0.08 * height, 0.6 * width, 0.3 * height)
        below = page.inset_axes(box)
        _bars(below, [names[k] for k in best], mean[i, best], low[i, best], high[i, best], wrong)
        if i + columns < n:  # the numbers of its scale stand below the last of a column
            below.tick_params(axis="x", labelbottom=False)
    return annotate(page, title)


def _columns(axes: Axes, n: int) -> int:
    """So many that a cell, a picture over its bars, is a little higher than wide; rows filled."""
    size = axes.get_window_extent()
    columns = int(np.clip(round(np.sqrt(1.35 * n * size.width / size.height)), 1, n))
    rows = -(-n // columns)
    return -(-n // rows)


def _picture(axes: Axes, picture: np.ndarray, heading: str, wrong: bool) -> None:
    axes.imshow(picture, cmap="gray", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=DATA, linewidth=0.8)
        if wrong:
            spine.set(color=TOTAL, linewidth=2.2, linestyle=(0, (3, 1.5)))
    axes.set_title(heading, fontsize=8, pad=3, color=MEAN, fontweight="bold" if wrong else "normal")


def _bars(
    axes: Axes, names: list[str], mean: np.ndarray, low: np.ndarray, high: np.ndarray, wrong: bool
) -> None:
    at = np.arange(len(names))[::-1]
    axes.barh(at, mean, 0.72, **(HATCHED if wrong else BLUE), linewidth=0.7)
    # intervals need not hold the mean, which a few networks can pull out of the middle
    axes.hlines(at, low, high, color=MEAN, linewidth=1.1)
    axes.plot([low, high], [at, at], "|", color=MEAN, markersize=4, markeredgewidth=1.1)
    axes.set_yticks(at, names, fontsize=7)
    axes.tick_params(axis="y", length=0, pad=2)
    axes.set(xlim=(0, 1), ylim=(-0.6, len(names) - 0.4))
    axes.set_xticks([0, 1], ["0", "1"], fontsize=6)
    axes.tick_params(axis="x", length=2, pad=1)
    axes.spines[["top", "right"]].set_visible(False)


def _pictures(x: ArrayLike, n: int, shape: tuple[int, ...] | None) -> np.ndarray:
    """Pictures as imshow takes them: (N, H, W) or, with three channels from 0 to 1, last."""
    pixels = np.asarray(admit(x, "x"))
    if pixels.ndim < 2 or len(pixels) != n:
        raise ValueError(f"x must hold the {n} pictures of the predictive, got {pixels.shape}")
    if n > MOST:
        raise ValueError(f"images shows at most {MOST} pictures, got {n}: choose some of them")
    if pixels.ndim == 2:
        count = pixels.shape[1]
        flat = (math.isqrt(count),) * 2 if shape is None else tuple(shape)
        if math.prod(flat) != count:
            raise ValueError(f"x is flat with {count} pixels, not {flat}: say shape=(H, W)")
        pixels = pixels.reshape(n, *flat)
    if pixels.ndim == 4 and pixels.shape[-1] not in (1, 3) and pixels.shape[1] in (1, 3):
        pixels = np.moveaxis(pixels, 1, -1)
    if pixels.ndim == 4 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 3:
        return pixels
    if pixels.ndim != 4 or pixels.shape[-1] != 3:
        raise ValueError(f"x must be pictures with one channel or three, got {pixels.shape}")
    return (pixels - pixels.min()) / (np.ptp(pixels) or 1)
