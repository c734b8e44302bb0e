"""Pictures of methods in the space of functions: what each thinks of a curve seen in parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pictures_common import (
    BLACK,
    BLUE,
    DATA,
    EPISTEMIC_FILL,
    PLACES,
    RED,
    banana,
    band,
    curve_density,
    draw_band,
    draw_density,
    draw_functions,
    gap,
    log_joint,
    network_model,
)

import posterax as px


def bayes_by_backprop(figure: Any) -> None:
    """The point estimate, the posterior, and each weight's mean and deviation."""
    left, middle, right = figure.subplots(1, 3)
    model = network_model((50,), activation="relu")
    point = px.fit(model, gap(), px.MaximumAPosteriori(1e-2), epochs=1500, key=0)
    method = px.BayesByBackprop(learning_rate=1e-2, samples=2)
    posterior = px.fit(model, gap(), method, epochs=4000, key=0, init=point)
    draw_band(left, point, "maximum a posteriori")
    draw_band(middle, posterior, "Bayes by Backprop", legend=True)
    middle.set_ylabel("")
    mu, sigma = (np.concatenate([np.ravel(a) for a in arrays]) for arrays in _arrays(posterior))
    right.plot(np.abs(mu), sigma, "o", ms=4, mfc="none", color=BLUE)
    right.axhline(1.0, color=BLACK, ls="--", lw=1)
    right.text(1.3e-3, 1.1, "the prior's σ")
    ends = np.array([1e-3, 10])
    right.plot(ends, ends, ":", color=RED, lw=1.2)
    right.text(1.4e-2, 9e-3, "|μ| = σ", color=RED)
    right.set(xscale="log", yscale="log", xlim=(1e-3, 6), ylim=(8e-3, 2))
    right.set(xlabel="|μ|", ylabel="σ", title="what is known of each weight")


def _arrays(posterior: px.Posterior) -> tuple[list[Any], list[Any]]:
    mean, deviation = posterior.moments()
    take = lambda m: [a for layer in m.network.layers for a in (layer.weight, layer.bias)]  # noqa: E731
    return take(mean), take(deviation)


def point_estimates(figure: Any) -> None:
    """Where likelihood and posterior peak, and the functions at their tops."""
    left, middle, right = figure.subplots(1, 3)
    data = np.ones((2, 1), "float32"), np.array([1.9, 2.3])
    line = ({"w": jnp.zeros(1)}, lambda p, x: x * p["w"])
    noise = px.likelihoods.Gaussian(noise=1.0)
    w = np.linspace(-3, 5, 400)
    curves = {
        "likelihood": curve_density(log_joint(px.Model(line, px.priors.Flat(), noise), data), w),
        "prior": np.exp(-0.5 * w**2) / np.sqrt(2 * np.pi),
        "posterior": curve_density(log_joint(px.Model(line, None, noise), data), w),
    }
    for (name, p), colour, dash in zip(
        curves.items(), (RED, BLACK, BLUE), ("--", ":", "-"), strict=True
    ):
        left.plot(w, p, dash, color=colour, lw=1.8, label=name)
        if name != "prior":
            left.plot(w[p.argmax()], p.max(), "o", color=colour, ms=5)
    left.set(xlabel="w", ylabel="density", title="two maxima", ylim=(0, 1.0), xlim=(-3, 5))
    left.legend(loc="upper left")
    rng = np.random.default_rng(4)
    t = np.linspace(-0.95, 0.95, 10)
    y = np.sin(3 * t) + 0.2 * rng.normal(size=10)
    places = np.linspace(-1.1, 1.1, 200)
    features = lambda t: np.polynomial.legendre.legvander(t, 9).astype("float32")  # noqa: E731
    network = {"w": np.zeros((10, 1), "float32")}, lambda p, x: x @ p["w"]
    model = px.Model(network, px.priors.Gaussian(0.3), px.likelihoods.Gaussian(noise=0.2))
    for axes, method, title in (
        (middle, px.MaximumLikelihood(3e-2), "maximum likelihood"),
        (right, px.MaximumAPosteriori(3e-2), "maximum a posteriori"),
    ):
        found = px.fit(model, (features(t), y), method, epochs=4000, key=0)
        band(axes, places, found.predict(features(places)), (t, y), f"{title}, degree 9")
        axes.set(xlim=(-1.1, 1.1), ylim=(-2.5, 2.5))
    right.set_ylabel("")
    right.legend(loc="lower right")


def deep_ensembles(figure: Any) -> None:
    """Members one by one, and what they say together."""
    left, right = figure.subplots(1, 2)
    method = px.DeepEnsemble(members=6, learning_rate=1e-2)
    posterior = px.fit(network_model(), gap(), method, epochs=2000, key=3)
    means = posterior.predict(PLACES).conditional_means()
    draw_functions(left, means, "six members", lw=1.4)
    draw_band(right, posterior, "their mixture", legend=True)


def dropout(figure: Any) -> None:
    """Functions of single masks at two rates, and the bands of the smaller one."""
    panels = figure.subplots(1, 3)
    model = network_model((64, 64))
    for axes, rate in zip(panels, (0.05, 0.2), strict=False):
        method = px.MCDropout(rate=rate, learning_rate=5e-3)
        posterior = px.fit(model, gap(), method, epochs=2500, key=0)
        means = posterior.predict(PLACES, samples=12, key=2).conditional_means()
        draw_functions(axes, means, f"twelve masks, rate {rate}", color=BLUE, lw=0.8, alpha=0.7)
        if rate == 0.05:
            draw_band(panels[2], posterior, f"200 masks, rate {rate}", legend=True)
    panels[1].set_ylabel("")
    panels[2].set_ylabel("")


def conjugate(figure: Any) -> None:
    """The exact band of a polynomial, and the evidence that chooses its degree."""
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    rng = np.random.default_rng(0)
    t = rng.uniform(-1, 1, 30)
    y = 0.5 - t + 2 * t**2 + 0.3 * rng.normal(size=30)
    degrees, found = range(7), {}
    for degree in degrees:
        network = {"w": np.zeros((degree + 1, 1), "float32")}, lambda p, x: x @ p["w"]
        model = px.Model(network, px.priors.Gaussian(2.0), px.likelihoods.Gaussian(noise=0.3))
        powers = np.vander(t, degree + 1, increasing=True).astype("float32")
        found[degree] = px.fit(model, (powers, y), px.Conjugate())
    places = np.linspace(-1.6, 1.6, 121)
    powers = np.vander(places, 3, increasing=True).astype("float32")
    predictive = found[2].predict(powers, samples=400, key=0)
    band(left, places, predictive, (t, y), "degree 2: the posterior")
    left.set(xlim=(-1.6, 1.6), ylim=(-2, 8))
    left.legend(loc="upper center")
    evidence = [found[d].log_evidence.value for d in degrees]
    right.plot(degrees, evidence, "o-", color=BLUE, lw=1.6)
    right.plot(2, evidence[2], "o", ms=10, mfc="none", mec=RED, mew=1.6, label="the true degree")
    right.set(xlabel="degree of the polynomial", ylabel="log evidence, nats")
    right.set(
        title="which degree the data speak for", ylim=(max(evidence) - 12, max(evidence) + 1.5)
    )
    right.legend(loc="lower right")


def laplace(figure: Any) -> None:
    """A Gaussian at the mode of one weight's posterior; predictions, linearised and sampled."""
    left, middle, right = figure.subplots(1, 3)
    curve = ({"w": jnp.array([1.0])}, lambda p, x: jnp.exp(p["w"]) * x)
    data = np.ones((3, 1), "float32"), np.array([1.0, 1.9, 1.3])
    model = px.Model(curve, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=1.0))
    posterior = px.fit(model, data, px.Laplace(learning_rate=1e-2), epochs=1500, key=0)
    w = np.linspace(-3.6, 2.4, 400)
    mode, width = (float(np.squeeze(m.network["w"])) for m in posterior.moments())
    left.fill_between(w, curve_density(log_joint(model, data), w), color=EPISTEMIC_FILL, lw=0)
    left.plot(w, np.exp(-0.5 * ((w - mode) / width) ** 2) / width / np.sqrt(2 * np.pi), color=RED)
    left.axvline(mode, color=BLACK, lw=1, ls=":")
    left.set(xlabel="w", ylabel="density", title="one weight", xlim=(-3.6, 2.4), ylim=(0, 1.35))
    left.text(-3.5, 1.25, "posterior", color=BLUE)
    left.text(-3.5, 1.13, "Gaussian at the mode", color=RED)
    network = network_model()
    point = px.fit(network, gap(), px.MaximumAPosteriori(1e-2), epochs=3000, key=0)
    linear = px.fit(network, gap(), px.Laplace(train=False), init=point, key=0)
    draw_band(middle, linear, "linearised: the default", legend=True)
    method = px.Laplace(train=False, predictive="sampled")
    sampled = px.fit(network, gap(), method, init=point, key=0)
    means = sampled.predict(PLACES, samples=12, key=1).conditional_means()
    draw_functions(right, means, "twelve sampled networks", color=BLUE, lw=0.8)
    right.set_ylabel("")


def ivon(figure: Any) -> None:
    """Deviations on their way to the exact ones, beside Bayes by Backprop's; and the band."""
    left, right = figure.subplots(1, 2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype("float32") * np.array([2.0, 0.5, 0.1], "float32")
    y = x @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=200)
    line = ({"w": jnp.zeros((3, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.5))
    best = 1 / np.sqrt(np.diag(np.eye(3) + x.T @ x / 0.25))
    stops = [10, 20, 40, 80, 160, 320, 640, 1200]
    methods = {
        "IVON": px.IVON(b2=0.99, schedule="constant"),
        "Bayes by Backprop": px.BayesByBackprop(learning_rate=1e-2, schedule="constant"),
    }
    for (name, method), colour, dash in zip(methods.items(), (BLUE, RED), ("-", "--"), strict=True):
        found: Any = None
        path = []
        for before, stop in zip([0, *stops], stops, strict=False):
            found = px.fit(model, (x, y), method, steps=stop - before, resume=found, key=0)
            path.append(np.ravel(found.moments()[1].network["w"]))
        for k in range(3):
            label = name if k == 0 else None
            left.plot(stops, np.array(path)[:, k], dash, color=colour, lw=1.6, label=label)
    for k, sigma in enumerate(best):
        label = "best mean-field σ" if k == 0 else None
        left.axhline(sigma, color=BLACK, ls=":", lw=1.2, label=label)
    left.set(xscale="log", yscale="log", xlabel="steps", ylabel="σ of three weights")
    left.set_title("how soon deviations follow the data")
    left.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93))
    model = network_model((50,), activation="relu")
    posterior = px.fit(model, gap(), px.IVON(b2=0.999), steps=4000, key=0)
    draw_band(right, posterior, "the curve, 4000 steps", legend=True)


def microcanonical(figure: Any) -> None:
    """Steps of equal length over a bent density, and the curve's bands."""
    from blackjax.mcmc.integrators import isokinetic_mclachlan
    from blackjax.mcmc.mclmc import build_kernel, init

    left, right = figure.subplots(1, 2)
    target = log_joint(*banana())
    draw_density(left, target, (-2.4, 2.2), (-2.4, 2.4))
    state = init(jnp.array([0.9, 0.3]), target, jax.random.key(3))
    kernel = build_kernel(isokinetic_mclachlan)
    step = jax.jit(lambda k, s: kernel(k, s, target, jnp.ones(2), 2.0, 0.25)[0])
    path = [state.position]
    for key in jax.random.split(jax.random.key(1), 90):
        state = step(key, state)
        path.append(state.position)
    way = np.array(path)
    left.plot(*way.T, "-", lw=0.9, color=DATA)
    left.plot(*way.T, "o", ms=3, color=RED)
    left.plot(*way[0], "s", ms=7, color=BLACK)
    left.set(xlabel="a", ylabel="b", title="90 steps of one chain, none rejected")
    method = px.MCLMC(chains=4, warmup=1000, ensemble_steps=500)
    posterior = px.fit(network_model(), gap(), method, steps=100, key=0)
    draw_band(right, posterior, "four chains of 100 draws", legend=True)


PICTURES = (
    bayes_by_backprop, point_estimates, deep_ensembles, dropout, conjugate, laplace, ivon,
    microcanonical,
)  # fmt: skip
