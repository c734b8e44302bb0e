"""What the methods' pictures share: one look, three small problems, and how to read them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import posterax as px
from posterax.plot.style import CHAINS, DATA, EPISTEMIC_FILL, MEAN

BLUE, RED, GREEN, BLACK, PINK, ORANGE = CHAINS
LOOK = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.linewidth": 0.8,
}
PLACES = np.linspace(-2, 2, 161, dtype="float32")[:, None]


def gap() -> tuple[np.ndarray, np.ndarray]:
    """A noisy sine with nothing in its middle and nothing outside [-1, 1]."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-1, -0.35, 25), rng.uniform(0.35, 1, 25)])
    return x[:, None].astype("float32"), np.sin(3 * x) + 0.1 * rng.normal(size=50)


def network_model(hidden: tuple[int, ...] = (20,), activation: str = "tanh") -> px.Model:
    """A network with a Gaussian prior, for ``gap``."""
    network = px.networks.MLP(1, 1, hidden, activation=activation, key=0)
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.1))


def draw_band(axes: Any, posterior: px.Posterior, title: str, *, legend: bool = False) -> Any:
    """Mean and bands over the gap's curve; the same limits everywhere."""
    predictive = posterior.predict(PLACES, samples=200, key=1)
    band(axes, PLACES, predictive, gap(), title)
    axes.set(xlim=(-2, 2), ylim=(-3, 3), xticks=(-2, -1, 0, 1, 2))
    if legend:
        axes.legend(loc="lower left")
    return predictive


def band(axes: Any, x: Any, predictive: Any, data: tuple[Any, Any], title: str) -> None:
    """``px.plot.regression_band`` with points that can be seen on a small panel."""
    px.plot.regression_band(axes, x, predictive, title=title)
    axes.plot(np.ravel(data[0]), data[1], "o", ms=2.5, color=DATA, zorder=3, label="data")
    axes.set(xlabel="x", ylabel="y")


def draw_functions(axes: Any, functions: np.ndarray, title: str, **line: Any) -> None:
    """Some functions over the gap's data."""
    x, y = gap()
    style = {"lw": 1.0, "alpha": 0.9} | line
    for number, f in enumerate(functions):
        colour = style.get("color", CHAINS[number % len(CHAINS)])
        axes.plot(PLACES[:, 0], f, **{**style, "color": colour})
    axes.plot(x[:, 0], y, "o", ms=2.5, color=DATA, zorder=3)
    axes.set(xlim=(-2, 2), ylim=(-3, 3), xticks=(-2, -1, 0, 1, 2), xlabel="x", ylabel="y")
    axes.set_title(title)


def banana() -> tuple[px.Model, tuple[np.ndarray, np.ndarray]]:
    """y = a + b² with noise: the data know a + b², and the posterior of (a, b) is bent."""
    x, y = np.ones((4, 1), "float32"), np.full(4, 1.0)

    def curve(params: Any, x: Any) -> Any:
        return x * (params["w"][0] + params["w"][1] ** 2)

    start = {"w": jnp.array([1.0, 0.2])}
    model = px.Model((start, curve), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.6))
    return model, (x, y)


def line_model(noise: float = 0.3) -> tuple[px.Model, tuple[np.ndarray, np.ndarray]]:
    """y = offset + slope x, at inputs around 0.8: two weights that the data tie together."""
    rng = np.random.default_rng(0)
    x = rng.normal(0.8, 0.5, (20, 1)).astype("float32")
    y = 0.3 + 0.6 * x[:, 0] + noise * rng.normal(size=20)
    line = ({"w": jnp.zeros(2)}, lambda p, x: p["w"][0] + p["w"][1] * x)
    return px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise)), (x, y)


def two_wells(noise: float = 0.4, tilt: float | None = None) -> Any:
    """y = w² + 0.12 w: a mode on each side of 0; with ``tilt`` an observation of w itself."""
    well = (
        {"w": jnp.array([-1.0])},
        lambda p, x: x[:, :1] * (p["w"] ** 2 + 0.12 * p["w"]) + x[:, 1:] * p["w"],
    )
    x, y = np.array([[1.0, 0.0]] * 4, "float32"), [1.2] * 4
    if tilt is not None:
        x, y = np.concatenate([x, np.array([[0.0, 1.0]], "float32")]), [*y, tilt]
    model = px.Model(well, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise))
    return model, (x, np.array(y))


def log_joint(model: px.Model, data: tuple[np.ndarray, np.ndarray]) -> Any:
    """log p(D, w) as a function of the vector w."""
    x, y = jnp.asarray(data[0]), jnp.asarray(data[1], "float32")[:, None]

    def of(w: Any) -> Any:
        return model.log_joint(model.parameters._replace(network={"w": w}), x, y)

    return of


def draw_density(axes: Any, density: Any, xs: tuple[float, float], ys: tuple[float, float]) -> None:
    """A density of two weights as contours that hold 50, 90 and 99 % of it."""
    a, b = np.linspace(*xs, 201), np.linspace(*ys, 201)
    grid = jnp.stack(jnp.meshgrid(a, b), -1).reshape(-1, 2)
    p = np.exp(np.asarray(jax.vmap(density)(grid), np.float64))
    p = (p / p.sum()).reshape(201, 201)
    ordered = np.sort(p.ravel())[::-1]
    levels = [ordered[np.searchsorted(ordered.cumsum(), share)] for share in (0.99, 0.9, 0.5)]
    axes.contourf(a, b, p, levels=[*levels, p.max()], colors=("#E3EEF5", "#C4DDEC", EPISTEMIC_FILL))
    axes.set(xlim=xs, ylim=ys)


def curve_density(density: Any, w: np.ndarray) -> np.ndarray:
    """A density of one weight on a grid, with area 1."""
    logs = np.asarray(jax.vmap(density)(jnp.asarray(w, "float32")[:, None]), np.float64)
    p = np.exp(logs - logs.max())
    return p / np.trapezoid(p, w)


def vectors(parameters: Any) -> np.ndarray:
    """The weights of draws, (…, D)."""
    return np.asarray(parameters.network["w"])


__all__ = [
    "BLACK",
    "BLUE",
    "DATA",
    "EPISTEMIC_FILL",
    "GREEN",
    "LOOK",
    "MEAN",
    "ORANGE",
    "PINK",
    "PLACES",
    "RED",
    "banana",
    "band",
    "curve_density",
    "draw_band",
    "draw_density",
    "draw_functions",
    "gap",
    "line_model",
    "log_joint",
    "network_model",
    "two_wells",
    "vectors",
]
