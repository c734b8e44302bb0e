"""Pictures of methods in the space of weights: how each finds its way to the posterior."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pictures_common import (
    BLACK,
    BLUE,
    DATA,
    EPISTEMIC_FILL,
    GREEN,
    ORANGE,
    RED,
    banana,
    curve_density,
    draw_density,
    line_model,
    log_joint,
    two_wells,
    vectors,
)

import posterax as px

BOX = (-2.4, 2.2), (-2.4, 2.4)  # around the banana


def hamiltonian(figure: Any) -> None:
    """Leapfrog trajectories along a bent density, their energy, and the draws of a chain."""
    from blackjax.mcmc.integrators import new_integrator_state, velocity_verlet

    left, middle, right = figure.subplots(1, 3)
    target = log_joint(*banana())
    step = jax.jit(velocity_verlet(target, lambda r: 0.5 * jnp.sum(r**2)))
    draw_density(left, target, *BOX)
    starts = (([0.9, 0.2], [-0.4, 1.5]), ([-0.6, 1.25], [1.0, -1.6]), ([0.4, -0.8], [0.3, 0.9]))
    for (w, r), colour in zip(starts, (RED, GREEN, BLACK), strict=True):
        state = new_integrator_state(target, jnp.array(w), jnp.array(r))
        way, energy = [], []
        for _ in range(51):
            way.append(state.position)
            energy.append(float(0.5 * jnp.sum(state.momentum**2) - state.logdensity))
            state = step(state, 0.06)
        line = np.array(way)
        left.plot(*line.T, "-", lw=1.4, color=colour)
        left.plot(*line[::3].T, "o", ms=2.5, color=colour)
        left.plot(*line[0], "s", ms=6, color=colour)
        middle.plot(np.array(energy) - energy[0], color=colour, lw=1.4)
    left.set(xlabel="a", ylabel="b", title="three trajectories of 50 leapfrogs")
    middle.axhline(0, color=DATA, lw=0.8, ls=":")
    middle.set(xlabel="leapfrogs", ylabel="ΔH, nats", title="what the integrator gets wrong")
    middle.set_ylim(-0.1, 0.1)
    model, data = banana()
    method = px.HMC(chains=2, warmup=300, leapfrog_steps=12)
    posterior = px.fit(model, data, method, steps=300, key=0)
    draw_density(right, target, *BOX)
    right.plot(*vectors(posterior.draws).reshape(-1, 2).T, "o", ms=2, color=RED, alpha=0.8)
    right.set(xlabel="a", ylabel="b", title="600 draws of px.HMC")


def metropolis(figure: Any) -> None:
    """One weight, three widths of the random walk: too careful, right, too bold."""
    panels = figure.subplots(1, 3, sharey=True)
    model, data = two_wells(noise=1.0)
    target = log_joint(model, data)
    w = np.linspace(-2, 2, 300)
    density = curve_density(target, w)
    for axes, width in zip(panels, (0.05, 1.8, 30.0), strict=True):
        walk = px.infer.metropolis.Proposal(
            sample=lambda key, w, s=width: w + s * jax.random.normal(key, w.shape)
        )
        method = px.Metropolis(chains=1, proposal=walk, warmup=1)
        posterior = px.fit(model, data, method, steps=300, key=2)
        chain = vectors(posterior.draws)[0, :, 0]
        rate = float(np.mean(posterior.stats["acceptance_rate"]))
        axes.fill_betweenx(w, 300 + 0 * w, 300 + 55 * density / density.max(),
                           color=EPISTEMIC_FILL, lw=0)  # fmt: skip
        axes.step(np.arange(300), chain, color=DATA, lw=0.7, where="post")
        moved = np.flatnonzero(np.diff(chain, prepend=np.inf))
        axes.plot(moved, chain[moved], "o", ms=2.2, color=BLUE)
        axes.set(xlim=(0, 356), ylim=(-1.9, 1.9), xlabel="step", xticks=(0, 100, 200, 300))
        axes.set_title(f"steps of σ = {width:g}: {rate:.0%} accepted")
    panels[0].set_ylabel("w")


def simulated_annealing(figure: Any) -> None:
    """A temperature that falls, and a chain that leaves a trap while it is hot."""
    left, right = figure.subplots(1, 2)
    model, data = two_wells(tilt=0.6)
    method = px.SimulatedAnnealing(chains=1, start_temperature=8.0, end_temperature=0.01, path=400)
    found = px.fit(model, data, method, steps=400, key=5, init=model.parameters)
    path = found.path
    hot, w = np.asarray(path["temperature"]), vectors(path["parameters"])[:, 0]
    step = np.asarray(path["step"])
    left.plot(step, w, "-", lw=0.6, color=DATA)
    shown = left.scatter(step, w, c=hot, s=9, cmap="plasma", norm="log", zorder=3)
    left.set(xlabel="step", ylabel="w", title="the path, by temperature", xlim=(0, 400))
    figure.colorbar(shown, ax=left, label="T", pad=0.02)
    places = np.linspace(-2.1, 2.0, 400)
    energy = -np.asarray(jax.vmap(log_joint(model, data))(jnp.asarray(places, "float32")[:, None]))
    right.plot(places, energy, color=BLACK, lw=1.4)
    right.scatter(w, np.asarray(path["energy"]), c=hot, s=14, cmap="plasma", norm="log", zorder=3)
    best = float(vectors(found.point)[0])
    low = float(np.min(np.asarray(path["energy"])))
    right.annotate("the best point", (best, low), (best - 0.55, low - 3.2), ha="center",
                   arrowprops={"arrowstyle": "-", "lw": 0.8})  # fmt: skip
    right.annotate("the start", (-1.0, energy[np.abs(places + 1).argmin()]), (-1.0, low - 3.2),
                   ha="center", arrowprops={"arrowstyle": "-", "lw": 0.8})  # fmt: skip
    right.set(xlabel="w", ylabel="energy, nats", title="energies it met")
    right.set_ylim(low - 4.5, low + 22)


def importance_sampling(figure: Any) -> None:
    """Candidates as large as their weights: from the prior, and from a better proposal."""
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    model, data = line_model()
    near = px.priors.Gaussian(0.35, loc=0.45)
    rows = []
    for axes, name, proposal in zip(panels, ("the prior", "N(0.45, 0.35²)"), ("prior", near),
                                    strict=False):  # fmt: skip
        method = px.ImportanceSampling(chains=10, proposal=proposal)
        found = px.fit(model, data, method, steps=40, key=1)
        c, logs = vectors(found.draws).reshape(-1, 2), np.asarray(found.stats["log_weight"]).ravel()
        share = np.exp(logs - logs.max())
        share /= share.sum()
        draw_density(axes, log_joint(model, data), (-1.9, 2.3), (-1.9, 2.3))
        axes.scatter(*c.T, s=1500 * share, color=RED, alpha=0.6, lw=0)
        axes.plot(*c.T, ".", ms=1.5, color=BLACK)
        axes.set(xlabel="offset", ylabel="slope", title=f"400 candidates of {name}")
        rows.append((name, np.sort(share)[::-1].cumsum(), found.effective_sample_size))
    panels[1].set_ylabel("")
    for (name, total, count), colour, dash in zip(rows, (RED, BLUE), ("-", "--"), strict=True):
        panels[2].plot(np.arange(1, 401), total, dash, color=colour, lw=1.6,
                       label=f"{name}: {count:.0f} count")  # fmt: skip
    panels[2].set(xscale="log", xlabel="largest candidates", ylabel="their share of the weight")
    panels[2].set(ylim=(0, 1.02), xlim=(1, 400), title="how many carry the estimate")
    panels[2].legend(loc="lower right")


def enumeration(figure: Any) -> None:
    """The probability of every network there is, and of every weight."""
    left, right = figure.subplots(1, 2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(14, 13)).astype("float32")
    truth = np.where(rng.uniform(size=13) < 0.5, -1.0, 1.0)
    line = ({"w": jnp.ones((13, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(line, px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(noise=4.0))
    posterior = px.fit(model, (x, x @ truth + 4.0 * rng.normal(size=14)), px.Enumeration())
    logs = np.asarray(posterior.log_probs, np.float64).ravel()
    p = np.sort(np.exp(logs - logs.max()))[::-1]
    p /= p.sum()
    left.plot(np.arange(1, len(p) + 1), p, color=BLUE, lw=1.8)
    half = int(np.searchsorted(p.cumsum(), 0.5)) + 1
    left.fill_between(np.arange(1, half + 1), p[:half], 1e-9, color=EPISTEMIC_FILL, lw=0)
    left.set(xscale="log", yscale="log", xlim=(1, len(p)), ylim=(1e-7, 0.05))
    left.set(xlabel="the 8,192 networks of 13 binary weights, by rank", ylabel="p(w | D)")
    left.set_title(f"all of them: the first {half} hold half")
    up = np.asarray(posterior.marginals().network["w"])[:, 0, 1]
    right.bar(np.arange(1, 14), up, color=np.where(truth > 0, BLUE, ORANGE), width=0.75)
    right.text(0.4, 1.03, "true weight +1", color=BLUE)
    right.text(6.0, 1.03, "true weight −1", color=ORANGE)
    right.axhline(0.5, color=BLACK, lw=0.8, ls=":")
    right.set(ylim=(0, 1.12), xticks=range(1, 14), ylabel="P(w = +1 | D)", xlabel="weight")
    right.set_title("each weight by itself")


def smc(figure: Any) -> None:
    """Densities between prior and posterior, and the particles at the end."""
    import matplotlib as mpl

    left, right = figure.subplots(1, 2)
    model, data = two_wells()
    posterior = px.fit(model, data, px.SMC(particles=2000), key=0)
    lambdas = [0.0, *np.asarray(posterior.history["temperature"])]
    w = np.linspace(-2.6, 2.6, 500)
    joint, prior = log_joint(model, data), lambda w: -0.5 * jnp.sum(w**2)
    for number, one in enumerate(lambdas):
        tempered = lambda w, t=one: prior(w) * (1 - t) + joint(w) * t  # noqa: E731
        colour = mpl.colormaps["viridis"](number / max(len(lambdas) - 1, 1) * 0.9)
        left.plot(w, curve_density(tempered, w), color=colour, lw=1.6, label=f"λ = {one:.3g}")
    left.set(xlabel="w", ylabel="density", title="from the prior to the posterior", ylim=(0, None))
    left.legend(loc="upper left", ncols=1)
    particles = vectors(posterior.draws).ravel()
    right.hist(particles, bins=70, range=(-2.6, 2.6), density=True, color=EPISTEMIC_FILL,
               label="2,000 particles")  # fmt: skip
    right.plot(w, curve_density(joint, w), color=RED, lw=1.6, label="posterior")
    share = float((particles > 0).mean())
    exact = float(np.trapezoid(np.where(w > 0, curve_density(joint, w), 0), w))
    right.set(xlabel="w", ylabel="density")
    right.set_title(f"P(w > 0): {share:.3f} of the particles, {exact:.3f} exactly")
    right.legend(loc="upper left")


def stochastic_gradient(figure: Any) -> None:
    """How the step widens what SGLD samples, measured and predicted."""
    left, right = figure.subplots(1, 2)
    x = np.random.default_rng(0).normal(size=(100, 1)).astype("float32")
    y = x[:, 0]
    line = ({"w": jnp.zeros((1, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=1.0))
    precision = 1 + float(np.sum(x.astype(np.float64) ** 2))
    exact = 1 / np.sqrt(precision)
    shares, widths = (0.05, 0.2, 0.5, 1.0, 1.4, 1.7), {}
    for share in shares:  # of 1 / precision
        rate = share * 100 / precision
        method = px.SGLD(learning_rate=rate, chains=8, keep=2000, schedule="constant")
        found = px.fit(model, (x, y), method, steps=8000, key=0)
        widths[share] = vectors(found.draws).ravel() - float(x[:, 0] @ y) / precision
    fine = np.linspace(0, 1.75, 200)
    right.plot(fine, 1 / np.sqrt(1 - fine / 2), color=RED, lw=1.6, label="1 / √(1 − εa/2)")
    right.plot(shares, [widths[s].std() / exact for s in shares], "o", color=BLUE, label="measured")
    right.axhline(1, color=BLACK, lw=0.8, ls=":")
    right.set(xlabel="step ε, in units of 1 / curvature a", ylabel="deviation / exact deviation")
    right.set(title="the bias of the step", ylim=(0.8, None))
    right.legend(loc="upper left")
    w = np.linspace(-0.55, 0.55, 300)
    bins = np.linspace(-0.55, 0.55, 61)
    for share, colour in ((0.2, BLUE), (1.7, ORANGE)):
        left.hist(widths[share], bins=bins, density=True, histtype="step", color=colour, lw=1.6,
                  label=f"SGLD, εa = {share}")  # fmt: skip
    left.plot(w, np.exp(-0.5 * (w / exact) ** 2) / exact / np.sqrt(2 * np.pi), color=BLACK,
              ls="--", lw=1.4, label="posterior")  # fmt: skip
    left.set(xlabel="w, from the posterior's mean", ylabel="density", title="one weight, two steps")
    left.set_ylim(0, 5.4)
    left.legend(loc="upper left")


def svgd(figure: Any) -> None:
    """Particles on their way: pulled to the density, pushed apart."""
    panels = figure.subplots(1, 3, sharey=True)
    model, data = banana()
    method = px.SVGD(particles=40, learning_rate=0.05, schedule="constant")
    stops = (1, 40, 1500)
    found: Any = None
    for axes, stop, before in zip(panels, stops, (0, 1, 40), strict=True):
        found = px.fit(model, data, method, steps=stop - before, resume=found, key=0)
        draw_density(axes, log_joint(model, data), *BOX)
        axes.plot(*vectors(found.draws).reshape(-1, 2).T, "o", ms=4, color=RED)
        axes.set(xlabel="a", title=f"after {stop} step{'s' * (stop > 1)}")
    panels[0].set_ylabel("b")


def swag(figure: Any) -> None:
    """Where SGD walks about a mode, and the Gaussian that is made of it."""
    left, right = figure.subplots(1, 2)
    model, data = line_model()
    method = px.SWAG(rank=40, collect=0.5, training=px.MaximumAPosteriori(1e-2), every=5)
    for axes, size in ((left, 2), (right, 5)):
        found = px.fit(model, data, method, steps=2000, batch_size=size, key=0)
        mean = np.asarray(found.mu.network["w"])
        walk = mean + np.asarray(found.factor).T * np.sqrt(2 * 39)
        draw_density(axes, log_joint(model, data), (-0.4, 0.9), (-0.1, 1.3))
        axes.plot(*walk.T, "-o", ms=3, lw=0.5, color=BLACK)
        angle = np.linspace(0, 2 * np.pi, 100)
        factor, sigma = (np.asarray(a, float) for a in (found.factor, found.sigma.network["w"]))
        root = np.linalg.cholesky(factor @ factor.T + np.diag(sigma**2))
        for radius in (1, 2):
            ring = mean + radius * (root @ np.stack([np.cos(angle), np.sin(angle)])).T
            axes.plot(*ring.T, color=RED, lw=1.6, ls="-" if radius == 1 else "--")
        axes.set(xlabel="offset", ylabel="slope", title=f"batches of {size}")


def black_box(figure: Any) -> None:
    """Probabilities of discrete weights as they are learned, and the noise of their gradients."""
    left, right = figure.subplots(1, 2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 6)).astype("float32")
    y = x @ np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0]) + 2.5 * rng.normal(size=12)
    line = ({"w": jnp.ones((6, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(line, px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(noise=2.5))
    exact = np.asarray(px.fit(model, (x, y), px.Enumeration()).marginals().network["w"])[..., 1]
    stops = [1, 10, 20, 40, 70, 100, 150, 200, 300, 400, 500, 600]
    method = px.BlackBoxVI(learning_rate=0.03, schedule="constant")
    found: Any = None
    path = []
    for before, stop in zip([0, *stops], stops, strict=False):
        found = px.fit(model, (x, y), method, steps=stop - before, resume=found, key=0)
        path.append(np.asarray(found.marginals().network["w"])[..., 1].ravel())
    for k, colour in enumerate((BLUE, RED, GREEN, BLACK, "#CC79A7", ORANGE)):
        left.plot(stops, np.array(path)[:, k], color=colour, lw=1.6)
        left.axhline(exact.ravel()[k], color=colour, lw=0.9, ls=":")
    left.set(xlabel="steps", ylabel="P(w = +1)", ylim=(-0.02, 1.02), xlim=(0, 600))
    left.set_title("six binary weights (dotted: enumeration)")
    kinds = {"no baseline": None, "leave one out": "leave_one_out"}
    for (name, baseline), colour in zip(kinds.items(), (RED, BLUE), strict=True):
        own = px.BlackBoxVI(learning_rate=0.03, schedule="constant", baseline=baseline)
        history = px.fit(model, (x, y), own, steps=600, key=0).history["gradient_variance"]
        smooth = np.exp(np.convolve(np.log(history), np.full(25, 1 / 25), "valid"))
        right.plot(np.arange(len(smooth)) + 13, smooth, color=colour, lw=1.6, label=name)
    right.set(yscale="log", xlabel="steps", ylabel="variance of the gradient", xlim=(0, 600))
    right.set_title("what a baseline is worth")
    right.legend(loc="center right")


PICTURES = (
    hamiltonian, metropolis, simulated_annealing, importance_sampling, enumeration, smc,
    stochastic_gradient, svgd, swag, black_box,
)  # fmt: skip
