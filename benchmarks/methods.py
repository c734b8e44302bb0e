"""``python -m benchmarks.methods``: one table of all methods, for docs/methods/index.md.

What a method assumes and when to use it is written here. What it costs is measured: the seconds of
a step, as ``px.fit`` runs it, over those of a step of maximum likelihood on as much data, in turns;
what it holds while fitting and what its posterior stores are counted, in multiples of the number of
weights. Of several phases the last is timed, or the one that has ``steps``.

    python -m benchmarks.methods           # measure (about two minutes), save JSON, write the page
    python -m benchmarks.methods --only SMC   # measure some, keep the rest
    python -m benchmarks.methods --write   # the page from the JSON
"""

import argparse
import json
import platform
import statistics
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import posterax as px
from posterax._util.tree import tree_size
from posterax._util.writing import write_file
from posterax.fitting import loop
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start
from posterax.infer import Method

ROOT = Path(__file__).parent.parent
RESULT, PAGE = ROOT / "benchmarks/results/methods.json", ROOT / "docs/methods/index.md"
ROWS_OF_DATA, BATCH, ROUNDS, SECONDS = 1000, 100, 7, 0.15
GRID = px.priors.Grid([-1.0, 0.0, 1.0])


class Row(NamedTuple):
    """A method: an example of it, its page, and words."""

    method: Method
    page: str
    assumes: str
    limit: str  # what it converges to, given all the time in the world
    use: str


NOT = "no"
TABLE = {
    "maximum likelihood": Row(
        px.MaximumLikelihood(), "point_estimates",
        "one set of weights is enough", NOT, "as a baseline; with very much data",
    ),
    "maximum a posteriori": Row(
        px.MaximumAPosteriori(), "point_estimates",
        "one set of weights is enough", NOT, "as a baseline, and as a start for others",
    ),
    "simulated annealing": Row(
        px.SimulatedAnnealing(), "simulated_annealing",
        "one set of weights is enough", "no: the best point",
        "few weights, many modes, or no gradient",
    ),
    "deep ensemble": Row(
        px.DeepEnsemble(), "deep_ensembles",
        "modes that training finds stand for all", NOT,
        "as the first choice where M networks can be afforded",
    ),
    "MC dropout": Row(
        px.MCDropout(), "dropout",
        "a mask of units, independent of the data, times one set of weights", NOT,
        "a network that is trained with dropout anyway",
    ),
    "Bayes by Backprop": Row(
        px.BayesByBackprop(), "bayes_by_backprop",
        "weights are independent and Gaussian, about one mode", NOT,
        "large networks with minibatches; pruning; learning on with the posterior as prior",
    ),
    "full-covariance VI": Row(
        px.BayesByBackprop(family="full"), "bayes_by_backprop",
        "weights are jointly Gaussian, about one mode", NOT,
        "up to some thousand weights whose correlations matter",
    ),
    "low-rank VI": Row(
        px.BayesByBackprop(family="low_rank"), "bayes_by_backprop",
        "as above, correlations of low rank", NOT, "the same for more weights",
    ),
    "radial VI": Row(
        px.BayesByBackprop(family="radial"), "bayes_by_backprop",
        "directions and lengths of weights are independent, about one mode", NOT,
        "where many weights make draws of a Gaussian too long",
    ),
    "IVON": Row(
        px.IVON(), "ivon",
        "weights are independent and Gaussian, about one mode", NOT,
        "the same as Bayes by Backprop, at about the cost of Adam",
    ),
    "black-box VI": Row(
        px.BlackBoxVI(), "black_box",
        "weights are independent, of any family that can be drawn from", NOT,
        "discrete weights, or likelihoods without a gradient",
    ),
    "Laplace": Row(
        px.Laplace(), "laplace",
        "the posterior is Gaussian about its mode, with the curvature there", NOT,
        "uncertainty for a network that is trained already; evidence",
    ),
    "SWAG": Row(
        px.SWAG(), "swag",
        "steps of SGD about a mode are spread like the posterior", NOT,
        "a network that is trained by SGD anyway",
    ),
    "SVGD": Row(
        px.SVGD(), "svgd",
        "particles that repel one another stand for the posterior",
        "with ever more particles", "a few dozen networks that should differ",
    ),
    "SGLD": Row(
        px.SGLD(), "stochastic_gradient",
        "steps are small against the posterior", "with ever smaller steps",
        "more data than fits in a step, and time for many steps",
    ),
    "SGHMC": Row(
        px.SGHMC(), "stochastic_gradient",
        "steps are small against the posterior", "with ever smaller steps",
        "the same, and several modes by a cyclical schedule",
    ),
    "MCLMC": Row(
        px.MCLMC(warmup=200, ensemble_steps=200), "microcanonical",
        "steps are small against the posterior", "with ever smaller steps, or adjusted=True",
        "the posterior itself, for thousands of weights and more",
    ),
    "HMC": Row(
        px.HMC(warmup=100), "hamiltonian", "nothing but time", "yes",
        "the posterior itself, with trajectories of known length",
    ),
    "NUTS": Row(
        px.NUTS(warmup=50), "hamiltonian", "nothing but time", "yes",
        "the posterior itself, for some hundred weights, as a reference",
    ),
    "Metropolis": Row(
        px.Metropolis(warmup=200), "metropolis", "nothing but much time", "yes",
        "few weights, or discrete ones, or no gradient",
    ),
    "SMC": Row(
        px.SMC(particles=200), "smc", "nothing but time", "yes, with ever more particles",
        "several modes; evidence",
    ),
    "importance sampling": Row(
        px.ImportanceSampling(), "importance_sampling",
        "the proposal covers the posterior", "yes, with ever more candidates",
        "a handful of weights; evidence; correcting another method",
    ),
    "enumeration": Row(
        px.Enumeration(), "enumeration", "weights take few values", "exact at once",
        "up to some twenty discrete weights; checking other methods",
    ),
    "conjugate": Row(
        px.Conjugate(), "conjugate", "outputs are affine in the weights, and the noise is known",
        "exact at once", "linear models; the last layer of a trained network; evidence",
    ),
}  # fmt: skip


def problem(row: Row) -> tuple[px.Model, tuple[np.ndarray, np.ndarray]]:
    """A regression network with two layers of 50 units, or few where a method runs to its end."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS_OF_DATA, 8)).astype("float32")
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=ROWS_OF_DATA)
    last = isinstance(row.method, px.Conjugate)
    small = row.method.needs.counts == "nothing" and not last
    hidden, inputs = ((2,), 2) if small else ((50, 50), 8)
    prior = GRID if isinstance(row.method, px.Enumeration) else px.priors.Gaussian(1.0)
    network = px.networks.MLP(inputs, 1, hidden, key=0)
    parts: dict[str, Any] = {"where": "layers.2.*", "rest": "frozen"} if last else {}
    return px.Model(network, prior, px.likelihoods.Gaussian(0.1), **parts), (x[:, :inputs], y)


def stepper(row: Row, full: bool) -> tuple[Any, px.Posterior]:
    """A function that gives the seconds of a step, and the posterior of a short fit."""
    model, data = problem(row)
    options: dict[str, Any] = {} if full else {"batch_size": BATCH}
    if row.method.needs.counts != "nothing":
        options["steps"] = 40
    posterior = px.fit(model, data, row.method, key=0, progress=False, **options)
    ready = prepare(
        model, data, row.method, Asked(None, options.get("steps"), options.get("batch_size"))
    )
    phases = row.method.phases(ready.model, ready.plan)
    key, at = jax.random.key(0), posterior.record.final
    phase, state = phases[at.phase], at.state
    if row.page == "laplace":  # what has steps is the training in front of its pass
        phase = phases[0]
        state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
    told = loop.abstract_info(phase, state, ready.data, key)
    rows, draw_rows = loop.capacity(told[0])
    copy = lambda tree: jax.tree.map(lambda a: jnp.array(a, copy=True), tree)  # noqa: E731
    box = [copy(state), loop.make_buffers(told, rows, draw_rows)]

    def run(steps: int) -> float:
        # always the same steps of the schedule, so that none is past the end of the fit
        start, stop = (jnp.asarray(n, jnp.int32) for n in (0, steps))
        fixed = (phase, ready.data, key, start, stop, 1, loop.block_length(phase, box[0]))
        began = time.perf_counter()
        chunk = loop.run_chunk(fixed, *box)
        taken = int(chunk.taken)
        spent = time.perf_counter() - began
        box[:] = chunk.state, chunk.buffers
        return spent / max(taken, 1)

    run(1)  # compiles
    most = min(rows, draw_rows or rows)
    steps = max(1, min(most, int(SECONDS / max(run(2), 1e-6))))
    steps = max(1, min(most, int(SECONDS / run(steps))))
    return lambda: run(steps), posterior


def stored(posterior: px.Posterior) -> int:
    """How many numbers of a posterior are its own."""
    own = {k: v for k, v in vars(posterior).items() if k not in ("model", "state", "record")}
    return tree_size([v for v in jax.tree.leaves(own) if hasattr(v, "shape")])


def measure(names: list[str]) -> dict[str, Any]:
    """Costs of these methods, each in turns with the plain step."""
    plain = TABLE["maximum likelihood"]
    found: dict[str, Any] = {}
    for name in names:
        row = TABLE[name]
        full = bool(row.method.needs.all_data)
        with warnings.catch_warnings():  # fits so short are warned of, rightly
            warnings.simplefilter("ignore")
            base, _ = stepper(plain, full)
            seconds, posterior = stepper(row, full)
        ratios = [seconds() / base() for _ in range(ROUNDS)]
        weights = tree_size(posterior.model.parameters)
        draws = hasattr(posterior, "draws") and row.method.needs.counts != "epochs"
        kept = posterior.shape[1] if draws else 1  # type: ignore[attr-defined]
        found[name] = {
            "full_batch": full,
            "ratio": None if row.method.needs.counts == "nothing" else statistics.median(ratios),
            "held": tree_size(posterior.record.final.state) / weights,
            "stored": stored(posterior) / weights / kept,
            "per_draw": draws,
        }
        print(name, {k: v if not isinstance(v, float) else round(v, 2) for k, v in
                     found[name].items()}, flush=True)  # fmt: skip
    about = {
        "jax": jax.__version__, "posterax": px.__version__, "python": platform.python_version(),
        "device": jax.devices()[0].device_kind, "date": time.strftime("%Y-%m-%d"),
        "rounds": ROUNDS, "network": "8-50-50-1", "data": ROWS_OF_DATA, "batch": BATCH,
    }  # fmt: skip
    return {"methods": found, "about": about}


def times(value: float | None) -> str:
    """A multiple with two digits."""
    if value is None:
        return "–"
    return f"{value:.1f} ×" if value < 10 else f"{float(f'{value:.2g}'):,.0f} ×"


def page(result: dict[str, Any]) -> str:
    """docs/methods/index.md."""
    about = result["about"]
    heads = (
        "method", "assumes", "data in a step", "cost of a step", "held while fitting", "stored",
        "exact in the limit", "when to use",
    )  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for name, row in TABLE.items():
        cost = result["methods"][name]
        cells = (
            f"[{name}]({row.page}.md)",
            row.assumes,
            "all" if cost["full_batch"] else "a minibatch",
            times(cost["ratio"]),
            times(cost["held"]),
            times(cost["stored"]) + (" a draw" if cost["per_draw"] else ""),
            row.limit,
            row.use,
        )
        lines.append("| " + " | ".join(cells) + " |")
    notes = (
        "All methods have their default settings: four chains, five members, a covariance of all "
        "weights, and so on; samplers have a short warm-up, and SMC has 200 particles. The cost of "
        "a step is that of all chains or members together, relative to a step of maximum "
        f"likelihood on the same data: a batch of {about['batch']} of {about['data']:,} examples, "
        f"or all of them. The network is {about['network']}; with a larger network, methods that "
        "run several networks side by side gain less from it. The numbers held while fitting and "
        "the numbers stored in a posterior are multiples of the number of weights; for samplers, "
        "per stored draw. SMC, enumeration and the closed form have no number of steps: they run "
        "to their end. The closed form is for the last layer, and its multiples (the matrices of "
        "a covariance) refer to that layer's 51 weights."
    )
    measured = (
        f"Measured on {about['device']}, jax {about['jax']}, {about['date']}, median of "
        f"{about['rounds']} rounds, by `python -m benchmarks.methods`."
    )
    head = ["# All methods", "", "<!-- written by benchmarks/methods.py: edit the words there -->"]
    wrapped = (textwrap.fill(text, 100) for text in (notes, measured))
    return "\n".join([*head, "", *lines, "", "\n\n".join(wrapped), ""])


def main() -> None:
    """Measure or read, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="the page from the last measurement")
    parser.add_argument("--only", nargs="*", choices=TABLE, help="measure these, keep the rest")
    options = parser.parse_args()
    if not options.write:
        result = measure(options.only or list(TABLE))
        if options.only:
            known = json.loads(RESULT.read_text())
            both = known["methods"] | result["methods"]
            result = {"methods": {n: both[n] for n in TABLE if n in both}, "about": known["about"]}
        write_file(RESULT, json.dumps(result, indent=1) + "\n")
    write_file(PAGE, page(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
