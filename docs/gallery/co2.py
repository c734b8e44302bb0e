"""Weekly CO₂ at Mauna Loa: a network of one's own, weeks without a value, five years ahead.

    POSTERAX_DATA=… python docs/gallery/co2.py [--out FILE]   # fit, score, draw
    POSTERAX_DATA=… python docs/gallery/co2.py --choose       # how the settings were chosen

The last five years are used once, to score the forecast.
"""

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import posterax as px
from posterax.plot import DATA, EPISTEMIC_FILL, MEAN, TOTAL, TOTAL_FILL

FIRST = 1958  # the record begins in its spring
HELD_OUT, END = 1997, 2002
EARLIER = (1982, 1987, 1992)  # starts of the five-year windows on which settings were chosen
AHEAD = END - HELD_OUT
NEW = "#D55E00"  # the colour of weeks the fit has not seen


class Weeks(NamedTuple):
    """Dates as decimal years, and parts per million by volume."""

    year: np.ndarray
    ppm: np.ndarray

    def between(self, start: float, end: float) -> "Weeks":
        """The weeks of [start, end)."""
        inside = (start <= self.year) & (self.year < end)
        return Weeks(self.year[inside], self.ppm[inside])


class Settings(NamedTuple):
    """What ``--choose`` chooses between."""

    step: float | None = 0.5  # years of growth that share a weight; None: growth is smooth
    degree: int = 2
    hidden: int = 4
    heavy_tails: bool = False


SETTINGS = Settings()
TRIED = {
    "chosen: parabola, growth by half-years": SETTINGS,
    "growth by years": Settings(step=1.0),
    "growth by quarters": Settings(step=0.25),
    "no growth weights": Settings(step=None),
    "straight line, growth by half-years": Settings(degree=1),
    "8 hidden units": Settings(hidden=8),
    "Student's t noise": Settings(heavy_tails=True),
}


def load(folder: Path) -> tuple[Weeks, np.ndarray]:
    """The weeks that were measured, and the dates of those that were not.

    A missing week is no row of the data: nothing is put in its place.
    """
    rows = np.loadtxt(
        folder / "mauna_loa_co2_weekly.csv", dtype=str, delimiter=",", skiprows=1, ndmin=2
    )
    date = rows[:, 0].astype("datetime64[D]")
    begin = date.astype("datetime64[Y]")
    after = begin + np.timedelta64(1, "Y")
    length = after.astype("datetime64[D]") - begin.astype("datetime64[D]")
    year = 1970 + begin.astype(int) + (date - begin) / length
    seen = rows[:, 1] != ""
    return Weeks(year[seen], rows[seen, 1].astype(float)), year[~seen]


def features(year: np.ndarray, start: float, settings: Settings = SETTINGS) -> dict[str, Any]:
    """What the network reads of a date, for a forecast that begins at ``start``.

    Polynomials of time, a ramp for every stretch of time up to five years after ``start`` (from 0
    to its length while it lasts, flat before and after), sines and cosines of the year.
    """
    middle, half = (FIRST + start) / 2, (start - FIRST) / 2

    def smooth(year: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander((year - middle) / half, settings.degree)

    def ramps(year: np.ndarray) -> np.ndarray:
        if settings.step is None:
            return np.zeros((len(year), 1))
        begins = np.arange(FIRST, start + AHEAD, settings.step)
        return np.clip(year[:, None] - begins, 0, settings.step)

    # The polynomial takes its share of every ramp: a sum of ramps is almost a line, and NUTS is
    # slow where two weights can do the same. The functions that can be represented stay the same.
    past = np.linspace(FIRST, start, 2000)
    share = np.linalg.lstsq(smooth(past), ramps(past), rcond=None)[0]
    angle = 2 * np.pi * np.arange(1, 4) * year[:, None]
    parts = {
        "time": (year[:, None] - middle) / half,
        "trend": smooth(year),
        "growth": ramps(year) - smooth(year) @ share,
        "season": np.hstack([np.sin(angle), np.cos(angle)]),
    }
    return {name: part.astype(np.float32) for name, part in parts.items()}


class Series(eqx.Module):
    """A smooth trend, growth of its own in every half-year, and a season that changes slowly."""

    trend: jax.Array
    growth: jax.Array
    season: px.networks.MLP  # from time to the coefficients of the sines and cosines

    def __init__(self, x: dict[str, Any], hidden: int, key: int):
        self.trend = jnp.zeros(x["trend"].shape[1])
        self.growth = jnp.zeros(x["growth"].shape[1])
        waves = x["season"].shape[1]
        self.season = px.networks.MLP(1, waves, (hidden,), activation="tanh", key=key)

    def __call__(self, x: dict[str, Any]) -> jax.Array:
        season = self.season(x["time"]) @ x["season"]
        return (x["trend"] @ self.trend + x["growth"] @ self.growth + season)[None]


def build(x: dict[str, Any], settings: Settings = SETTINGS) -> px.Model:
    """The model, in ppm around the mean of the weeks it is fitted to."""
    prior = px.priors.ByPart(
        {
            "trend": px.priors.Gaussian(30.0),
            # one width for all half-years, learned: those to come get it from those before
            "growth": px.priors.Hierarchical(concentration=1.0, rate=0.1),
            "season.layers.1.bias": px.priors.Gaussian(3.0),  # the season itself
            "season.layers.1.weight": px.priors.Gaussian(0.3, fan_in=True),  # its change
        },
        default=px.priors.Gaussian(1.0),
    )
    kind = px.likelihoods.StudentT if settings.heavy_tails else px.likelihoods.Gaussian
    likelihood = kind(noise="learned", initial=0.3)
    return px.Model(Series(x, settings.hidden, key=0), prior, likelihood)


class Forecast(NamedTuple):
    """A posterior, and what its features and units depend on."""

    posterior: Any
    start: float
    settings: Settings
    level: float

    def at(self, year: np.ndarray) -> px.Predictive:
        """CO₂ at these dates, in ppm."""
        x = features(year, self.start, self.settings)
        return self.posterior.predict(x).in_units(self.level, 1.0)


def forecast(
    weeks: Weeks,
    start: float,
    settings: Settings = SETTINGS,
    *,
    warmup: int = 400,
    draws: int = 250,
    max_doublings: int = 8,
) -> Forecast:
    """Fit the weeks before ``start``, whatever else is given."""
    past = weeks.between(FIRST, start)
    x, level = features(past.year, start, settings), past.ppm.mean()
    data = (x, (past.ppm - level).astype(np.float32))
    model = build(x, settings)
    near = px.fit(model, data, px.MaximumAPosteriori(3e-2), steps=1500, batch_size=len(past.ppm))
    method = px.NUTS(chains=2, warmup=warmup, max_doublings=max_doublings)
    posterior = px.fit(model, data, method, steps=draws, init=near)
    return Forecast(posterior, start, settings, level)


def score(predictive: px.Predictive, ppm: np.ndarray) -> dict[str, float]:
    """RMSE (ppm), mean NLL (nats a week), coverage and mean width (ppm) of the 90 % interval."""
    low, high = predictive.interval(0.9)
    return {
        "RMSE": float(np.sqrt(np.mean(np.square(predictive.mean - ppm)))),
        "NLL": px.metrics.negative_log_likelihood(predictive, ppm),
        "coverage": float(np.mean((low <= ppm) & (ppm <= high))),
        "width": float(np.mean(high - low)),
    }


def naive(weeks: Weeks, start: float, year: np.ndarray) -> np.ndarray:
    """The same week of the last year before ``start``, plus the mean yearly growth of ten years."""
    past = weeks.between(FIRST, start)

    def nearest(when: np.ndarray) -> np.ndarray:
        return past.ppm[np.abs(past.year - when[:, None]).argmin(1)]

    last = past.between(start - 10, start)
    growth = np.mean(last.ppm - nearest(last.year - 1))
    ahead = np.floor(year - start) + 1
    return nearest(year - ahead) + ahead * growth


def disagreement(fitted: Forecast, year: np.ndarray) -> float:
    """The largest R̂ of the forecasts: how far apart the chains are, 1 where they agree."""
    from arviz_stats.base import array_stats

    outputs = fitted.at(year).outputs()
    chains = outputs.reshape(*fitted.posterior.shape, -1).astype(np.float64)
    return float(np.max(array_stats.rhat(chains, chain_axis=0, draw_axis=1)))


def draw(fitted: Forecast, weeks: Weeks, missing: np.ndarray, path: Path) -> None:
    """Save the picture: the whole record, its longest gap, and the last ten years."""
    from matplotlib.figure import Figure

    grid = np.linspace(weeks.year[0], END, 2600)
    predictive = fitted.at(grid)
    low, high = predictive.interval(0.9)
    inner = fitted.level + np.quantile(predictive.outputs()[..., 0], (0.05, 0.95), axis=0)
    old, new = weeks.between(FIRST, fitted.start), weeks.between(fitted.start, END)

    def panel(axes: Any, start: float, end: float, size: float) -> None:
        part = (start <= grid) & (grid <= end)
        when, mean = grid[part], predictive.mean[part]
        axes.fill_between(
            when, low[part], high[part],
            facecolor=TOTAL_FILL, edgecolor=TOTAL, linewidth=0.25 * size, linestyle="--",
            label="90 % interval of a week's value", zorder=1,
        )  # fmt: skip
        axes.fill_between(
            when, *inner[:, part],
            color=EPISTEMIC_FILL, linewidth=0, label="of that, epistemic", zorder=2,
        )  # fmt: skip
        axes.plot(when, mean, color=MEAN, linewidth=0.3 * size, label="mean", zorder=4)
        dots = {"markersize": size, "markeredgewidth": 0, "zorder": 3, "linestyle": "none"}
        axes.plot(*old.between(start, end), marker="o", color=DATA, label="fitted weeks", **dots)
        axes.plot(*new.between(start, end), marker="o", color=NEW, label="held-out weeks", **dots)
        inside = missing[(start <= missing) & (missing <= end)]
        axes.plot(  # a row of strokes along the bottom
            inside, np.full(len(inside), 0.03), "|", transform=axes.get_xaxis_transform(),
            color=MEAN, markersize=5, markeredgewidth=0.6, label="weeks not measured",
        )  # fmt: skip
        axes.set(xlim=(start, end))

    figure = Figure(figsize=(9, 7.4), layout="constrained")
    whole, close = figure.subplots(2, 1)
    panel(whole, FIRST, END, 1.6)
    whole.set(ylim=(307, 379), xticks=range(1960, END, 5))
    gap = whole.inset_axes((0.05, 0.47, 0.4, 0.53))
    panel(gap, 1963.5, 1965.5, 3)
    gap.set(ylim=(314, 324.5), xticks=(1964, 1965), yticks=(315, 320))
    gap.tick_params(labelsize=8)
    lines = whole.indicate_inset_zoom(gap, edgecolor="#666666", linewidth=0.8).connectors
    for line in lines:  # they would cross the record; the axis says where the inset belongs
        line.set_visible(False)
    panel(close, HELD_OUT - 5, END, 3)
    close.axvline(fitted.start, color="#666666", linewidth=0.8, zorder=0)
    close.annotate(
        "forecast →", (fitted.start, 0.94), (6, 0),
        xycoords=("data", "axes fraction"), textcoords="offset points",
    )  # fmt: skip
    close.set(xticks=range(HELD_OUT - 5, END + 1), ylim=(349, 379), xlabel="year")
    for axes in (whole, close):
        axes.set_ylabel("CO₂ at Mauna Loa (ppm)")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = close.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def choose(weeks: Weeks) -> None:
    """Score every setting on three earlier windows, each predicted from the weeks before it."""
    print(
        f"{'':40}  {'RMSE':>6}  {'NLL':>6}  coverage  width   each window's RMSE / NLL / coverage"
    )
    for name, settings in TRIED.items():
        rows = []
        for start in EARLIER:
            window = weeks.between(start, start + AHEAD)
            rows.append(score(forecast(weeks, start, settings).at(window.year), window.ppm))
        mean = {key: np.mean([row[key] for row in rows]) for key in rows[0]}
        each = "  ".join(f"{r['RMSE']:.2f} / {r['NLL']:.2f} / {r['coverage']:.2f}" for r in rows)
        print(
            f"{name:40}  {mean['RMSE']:6.2f}  {mean['NLL']:6.2f}  {mean['coverage']:8.2f}  "
            f"{mean['width']:5.2f}   {each}",
            flush=True,
        )
    for start in EARLIER:
        window = weeks.between(start, start + AHEAD)
        error = naive(weeks, start, window.year) - window.ppm
        print(f"last year plus growth, {start}: RMSE {np.sqrt(np.mean(error**2)):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--choose", action="store_true", help="compare settings, and no more")
    options = parser.parse_args()
    folder = os.environ.get("POSTERAX_DATA")
    if not folder:
        raise SystemExit("POSTERAX_DATA must name the directory of mauna_loa_co2_weekly.csv")
    weeks, missing = load(Path(folder))
    if options.choose:
        choose(weeks.between(FIRST, HELD_OUT))
        return
    held_out = weeks.between(HELD_OUT, END)
    fitted = forecast(weeks.between(FIRST, HELD_OUT), HELD_OUT)
    scores = score(fitted.at(held_out.year), held_out.ppm)
    error = naive(weeks, HELD_OUT, held_out.year) - held_out.ppm
    print(f"{len(weeks.ppm)} weeks measured, {len(missing)} not; {len(held_out.ppm)} held out")
    print("  ".join(f"{name} {value:.3f}" for name, value in scores.items()))
    print(f"last year plus growth: RMSE {np.sqrt(np.mean(error**2)):.3f}")
    stats = fitted.posterior.stats
    print(
        f"R̂ of the forecasts at most {disagreement(fitted, held_out.year):.3f}, "
        f"{int(stats['diverging'].sum())} divergences, {stats['n_steps'].mean():.0f} steps a draw"
    )
    draw(fitted, weeks, missing, options.out)
    print(options.out.name)


if __name__ == "__main__":
    main()
