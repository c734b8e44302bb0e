"""Four chains that disagree about a weight and agree about the function.

python docs/gallery/chains.py [--out FILE]
"""

import argparse
from pathlib import Path

import numpy as np

import posterax as px


def fit() -> tuple[px.Posterior, np.ndarray]:
    """NUTS on a noisy sine and a network of five hidden units; and the inputs."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 1)).astype("float32")
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=40)
    network = px.networks.MLP(1, 1, (5,), activation="tanh", key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.1))
    method = px.NUTS(chains=4, warmup=500, target_acceptance=0.95)
    return px.fit(model, (x, y), method, steps=500, key=0), x


def main() -> None:
    """Fit, print the diagnosis, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).parents[1] / "images" / "chains.png"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    posterior, x = fit()
    print(posterior.diagnose(x))
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.2), layout="constrained")
    (trace, ranks), (below, below_ranks) = figure.subplots(2, 2)
    px.plot.trace(trace, posterior)
    px.plot.ranks(ranks, posterior)
    px.plot.trace(below, posterior, x=x)
    px.plot.ranks(below_ranks, posterior, x=x)
    figure.savefig(options.out, dpi=120)


if __name__ == "__main__":
    main()
