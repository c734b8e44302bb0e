"""Tables and picture of the bandit experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from posterax.plot import DATA, chain_style, regret

from .bandit import FORGETTING, MUSHROOM, WORLDS
from .pages import count, device, plus_minus, pyplot, save, table
from .pairs import estimate
from .store import Store

# what is lost by always doing the same, at each mushroom: 4208 of 8124 are edible
NEVER, ALWAYS = 5 * 4208 / 8124, 15 * 3916 / 8124
PUBLISHED = {
    "Bayes by Backprop": "10³ to 10⁴, the lowest curve",
    "greedy": "above Bayes by Backprop",
    "1 % greedy": "above Bayes by Backprop",
    "5 % greedy": "above Bayes by Backprop",
}


def summary(store: Store) -> dict[str, Any]:
    """Regret over the runs, by environment, policy and number of interactions."""
    return {
        part: {
            name: {
                mark: estimate(values)._asdict() for mark, values in figures["regret"].items()
            }
            | {"seconds": figures["seconds"]}
            for name, figures in store.under(f"{part}/").items()
        }
        for part in ("mushroom", *WORLDS)
        if store.under(f"{part}/")
    }  # fmt: skip


def page(store: Store) -> str:
    """Markdown: the mushrooms, then the other environments."""
    settings, facts = store.content["settings"], store.content["facts"]
    figures = summary(store)
    lines = [
        f"{count(settings['runs'], 'run')} of {settings['steps']:,} interactions; "
        f"{settings['updates']} minibatches of {settings['batch_size']} after each, from the last "
        f"{settings['buffer']:,}; two layers of {settings['width']} ({device(facts)}, jax "
        f"{facts['jax']}; seconds are for all runs together, compilation included). "
        f"{_chosen(settings)} Mean cumulative regret ± standard error over the runs:",
        _mushrooms(figures["mushroom"]),
        _verdict(figures["mushroom"], str(settings["steps"])),
        *_others(figures, settings),
        "![Cumulative regret](bandit.png)",
    ]
    return "\n\n".join(lines)


def _mushrooms(figures: dict[str, Any]) -> str:
    marks = list(next(iter(figures.values())))[:-1]
    heads = ["policy", *(f"{int(mark):,}" for mark in marks), "published, 50,000", "seconds"]
    rows = []
    for name in (name for name in MUSHROOM if name in figures):
        row = figures[name]
        cells = [plus_minus(row[mark], 0) for mark in marks]
        rows.append([name, *cells, PUBLISHED.get(name, "—"), f"{row['seconds']:,.0f}"])
    for name, each in (("never eat (by arithmetic)", NEVER), ("always eat", ALWAYS)):
        cells = [f"{each * int(mark):,.0f}" for mark in marks]
        rows.append([name, *cells, f"{each * 50:.1f}k", "—"])
    return table(heads, rows, f"l{'r' * len(marks)}lr")


def _chosen(settings: dict[str, Any]) -> str:
    own = settings["chosen"]
    prior = "scale mixture (π, σ₁, σ₂) =" if len(own["prior"]) == 3 else "Gaussian, σ ="
    counted = {"seen": "all interactions so far", "buffer": "those in the buffer"}
    return (
        f"Bayes by Backprop: prior {prior} {', '.join(f'{v:g}' for v in own['prior'])}; Gaussian "
        f"likelihood of rewards / {own['scale']:g} with deviation {own['noise']:g}; KL by "
        f"{counted[own['data_size']]}; Adam at {_rate(own)}, its ε {own['eps']:g}; ρ from "
        f"{own['initial_rho']:g}. ε-greedy: maximum likelihood, Adam at {_rate(settings['point'])}."
    )


def _rate(own: dict[str, Any]) -> str:
    """The learning rate after t interactions.

    Example:
        >>> from experiments.bandit import CHOSEN
        >>> from experiments.bandit_report import _rate
        >>> _rate(CHOSEN._asdict())
        '0.0003 / (1 + t / 1,000)'
    """
    if own["decay"] is None:
        return f"{own['learning_rate']:g}"
    power = {1.0: "", 0.5: "^½"}.get(own["power"], f"^{own['power']:g}")
    return f"{own['learning_rate']:g} / (1 + t / {own['decay']:,.0f}){power}"


def _verdict(figures: dict[str, Any], last: str) -> str:
    """Whether the marks that were set are reached, in words."""
    own = figures["Bayes by Backprop"][last]["mean"]
    rest = {name: figures[name][last]["mean"] for name in figures if "greedy" in name}
    above = [name for name, value in rest.items() if value <= own]
    text = f"After {int(last):,} interactions Bayes by Backprop's mean regret is {own:,.0f}: "
    text += (
        "below every ε-greedy" if not above else f"**not** below {' and '.join(above)}"
    ) + " in the mean"
    if int(last) >= 50_000:
        text += ", and " + ("below 10,000" if own < 10_000 else "**not** below 10,000")
    return text + "."


def _others(figures: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    names = list(dict.fromkeys(n for t in WORLDS for n in figures.get(t, ()) if n != "uniform"))
    text = (
        f"Other environments, {settings['other_steps']:,} interactions with "
        f"{settings['other_updates']} minibatches each: regret in percent of a coin's "
        "(uniform choice) ± standard error:"
    )
    last, rows = str(settings["other_steps"]), []
    for title in (title for title in WORLDS if title in figures):
        world = figures[title]
        coin = world["uniform"][last]["mean"]
        cells = [
            plus_minus(world[name][last], 1, 100 / coin) if name in world else "—" for name in names
        ]
        rows.append([title, *cells, f"{coin:,.0f}"])
    return [text, table(["environment", *names, "a coin's regret"], rows)]


def draw(store: Store, path: Path) -> None:
    """The mushrooms' curves, large; the other environments below."""
    plt = pyplot()
    known = dict.fromkeys([*MUSHROOM, *(n for world in WORLDS.values() for n in world.policies)])
    styles = {name: chain_style(i) for i, name in enumerate(known)}
    styles[FORGETTING] = {"color": DATA, "linestyle": (0, (3, 1, 1, 1))}
    worlds = [title for title in WORLDS if store.under(f"{title}/")]
    figure = plt.figure(figsize=(11, 8.5), layout="constrained")
    grid = figure.add_gridspec(2, len(worlds), height_ratios=(1.5, 1))
    shown: dict[str, Any] = {}
    for i, part in enumerate(("mushroom", *worlds)):
        axes = figure.add_subplot(grid[0, :] if i == 0 else grid[1, i - 1])
        runs = store.under(f"{part}/")
        curves = {name: (run["after"], run["curves"]) for name, run in runs.items()}
        if i == 0 and (most := max(np.max(regrets) for _, regrets in curves.values())) > 1_000:
            axes.set_ylim(100, 1.5 * most)  # what the first interactions cost is no news
        regret(axes, curves, log=i == 0, names=i == 0, styles=styles, title=part)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        if i:
            axes.set_ylabel("cumulative regret" if i == 1 else "")
            axes.locator_params(axis="y", nbins=4)
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.set_xticks(np.linspace(0, axes.get_xlim()[1], 3))
            lines, names = axes.get_legend_handles_labels()
            shown |= dict(zip(names, lines, strict=True))
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=5, frameon=False)
    save(figure, path, dpi=130)
