"""When to stroke an animal that may be a wolf, and what is gained by asking where it is unclear.

python docs/gallery/deciding.py [--out FILE]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from posterax.plot.style import DATA, EPISTEMIC_FILL, STRIP_FILL, TOTAL_FILL, chain_style

ACTIONS = ("stroke it", "keep away")
LOSS = np.array([[0.0, 1.0], [20.0, 0.0]])  # rows: no wolf, wolf
ASKING = 0.5


def draw_choice(axes: Any) -> None:
    """Expected losses over the probability of a wolf, and what is done where."""
    p = np.linspace(0, 0.8, 3201)
    both = np.stack([1 - p, p], axis=1)
    decision = px.decide(both, LOSS, abstain=ASKING)
    done = np.where(decision.abstained, 2, decision.expected.argmin(-1))
    fills, names = (EPISTEMIC_FILL, TOTAL_FILL, STRIP_FILL), (*ACTIONS, "ask")
    for action in (0, 2, 1):
        where = p[done == action]
        axes.axvspan(where[0], where[-1], color=fills[action], lw=0)
        axes.text(where.mean(), 1.27, names[action], ha="center", rotation=90 if action == 0 else 0,
                  va="top", fontsize=9)  # fmt: skip
    for action, name in enumerate(ACTIONS):
        axes.plot(p, decision.expected[:, action], lw=1.8, label=name, **chain_style(action))
    axes.axhline(ASKING, lw=1.8, label="ask a keeper", **chain_style(3))
    axes.set(xlim=(0, 0.8), ylim=(0, 1.3), xlabel="probability of a wolf", ylabel="expected loss")
    axes.set_title("The least of three expected losses", fontsize=10)
    axes.legend(loc=(0.12, 0.05), fontsize=8, framealpha=1)


def draw_abstention(axes: Any) -> None:
    """Errors among what is decided over the share that is, by the cost of abstaining."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(0.6 * np.ones(3), 5000)
    y = np.array([rng.choice(3, p=q) for q in p])
    share, expected, realised = [], [], []
    for cost in np.linspace(0.02, 0.66, 33):
        decision = px.decide(p, "zero_one", abstain=cost)
        share.append(decision.accepted)
        expected.append(decision.accepted_risk)
        realised.append(decision.realised(y).loss_of_accepted)
    axes.plot(share, expected, lw=1.8, label="expected", **chain_style(0))
    axes.plot(share, realised, "o", ms=4, color=DATA, mfc="none", label="realised")
    axes.set(xlabel="share that is decided", ylabel="share of errors among them", ylim=(0, None))
    axes.set_title("Abstaining where the risk exceeds its cost", fontsize=10)
    axes.legend(loc="upper left", fontsize=8)


def main() -> None:
    """Draw both and save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).parents[1] / "images" / "deciding.png"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_choice(left)
    draw_abstention(right)
    figure.savefig(options.out, dpi=120)


if __name__ == "__main__":
    main()
