"""μ and σ of each library by the names of ``problems``; numpy alone, for every environment.

An array is ``layers.0.weight``, (outputs, inputs, …), or ``layers.0.bias``, (outputs,).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def softplus(rho: np.ndarray) -> np.ndarray:
    """log(1 + exp ρ)."""
    return np.logaddexp(0, rho).astype(np.asarray(rho).dtype)


def identity(a: np.ndarray) -> np.ndarray:
    """σ itself."""
    return np.asarray(a)


# how a library names what it has of an array ("{layer}", "{array}"), and how σ comes of it
NAMES: dict[str, tuple[str, str, Any]] = {
    "bayesian-torch": ("{layer}.mu_{array}", "{layer}.rho_{array}", softplus),
    "torchbnn": ("{layer}.{array}_mu", "{layer}.{array}_log_sigma", np.exp),
    "blitz": ("{layer}.{array}_mu", "{layer}.{array}_rho", softplus),
    "pyro": ("locs.{layer}.{array}", "scales.{layer}.{array}", identity),
    "numpyro": ("{layer}.{array}_auto_loc", "{layer}.{array}_auto_scale", identity),
}


def arrays_of(layers: Any) -> list[tuple[str, str, str]]:
    """(layer, array, kind) of everything that has weights, in order."""
    weighted = [kind for kind, *sizes in layers if sizes]
    return [
        (f"layers.{i}", array, kind)
        for i, kind in enumerate(weighted)
        for array in ("weight", "bias")
    ]


def read(peer: str, state: Mapping[str, Any], layers: Any) -> tuple[Arrays, Arrays]:
    """μ and σ by name, from what a library calls them."""
    centre, spread, to_sigma = NAMES[peer]
    mu, sigma = {}, {}
    for layer, array, kind in arrays_of(layers):
        own = array
        if (peer, kind, array) == ("bayesian-torch", "conv", "weight"):
            own = "kernel"
        m, s = (np.asarray(state[form.format(layer=layer, array=own)]) for form in (centre, spread))
        s = to_sigma(s)
        if (peer, kind, array) == ("numpyro", "linear", "weight"):
            m, s = m.T, s.T  # its users multiply x @ w
        mu[f"{layer}.{array}"], sigma[f"{layer}.{array}"] = m, s
    return mu, sigma


def save(path: Any, mu: Arrays, sigma: Arrays) -> None:
    """Both into one npz."""
    parts = {f"mu/{k}": v for k, v in mu.items()} | {f"sigma/{k}": v for k, v in sigma.items()}
    np.savez(path, **parts)  # type: ignore[arg-type]


def load(path: Any) -> tuple[Arrays, Arrays]:
    """Both out of one npz."""
    stored = np.load(path, allow_pickle=False)
    both = [
        {k.removeprefix(part): stored[k] for k in stored.files if k.startswith(part)}
        for part in ("mu/", "sigma/")
    ]
    return both[0], both[1]
