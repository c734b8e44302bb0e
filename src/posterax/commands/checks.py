"""The checks of ``posterax doctor``: each tells what it found, and what to do about it."""

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .._version import __version__
from . import one_line

if TYPE_CHECKING:
    import numpy as np

    from ..model import Model

SHOWN = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "pandas", "equinox", "numpyro")
EXTRAS = {  # module → the extra that brings it, and what for
    "pyarrow": ("parquet", "Parquet files"),
    "flax": ("flax", "networks of Flax"),
    "tensorboardX": ("tensorboard", "px.callbacks.TensorBoard"),
}
LITTLE = 2**30  # bytes of free memory
SLOW = 0.1  # seconds for one step of a small network


class Check(NamedTuple):
    """A line of the report; ``state`` is ``"ok"``, ``"warn"`` or ``"fail"``."""

    name: str
    state: str
    found: str
    advice: str = ""


def all_checks() -> Iterator[Check]:
    """Every check, as it is done; what raises has failed."""
    for name, check in CHECKS.items():
        try:
            state, found, *advice = check()
            yield Check(name, state, one_line(found), " ".join(advice))
        except Exception as error:
            said = one_line(f"{type(error).__name__}: {error}")
            yield Check(name, "fail", said, "install posterax again, in an environment of its own")


# -- what is here


def posterax() -> tuple[str, ...]:
    text = f"{__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    return "ok", text


def packages() -> tuple[str, ...]:
    """Versions, against those that this posterax asks for."""
    from packaging.requirements import Requirement

    shown = ", ".join(f"{name} {metadata.version(name)}" for name in SHOWN)
    wrong = []
    for line in metadata.requires("posterax") or ():
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            has = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
            continue
        if not need.specifier.contains(has, prereleases=True):
            wrong.append(f"{need.name} {has}, but {need.specifier} is needed")
    if wrong:
        return "fail", "; ".join(wrong), "pip install --upgrade posterax"
    return "ok", shown


def extras() -> tuple[str, ...]:
    there = [name for name in EXTRAS if find_spec(name) is not None]
    absent = [
        f"{name} not installed (for {what}: pip install 'posterax[{extra}]')"
        for name, (extra, what) in EXTRAS.items()
        if name not in there
    ]
    return "ok", "; ".join([*([", ".join(there)] if there else []), *absent])


def devices() -> tuple[str, ...]:
    import jax

    text = ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())
    if jax.default_backend() == "cpu" and Path("/dev/nvidia0").exists():
        advice = "JAX does not use this machine's GPU: pip install 'jax[cuda12]'"
        return "warn", f"{text}; there is an NVIDIA device too", advice
    return "ok", text


def memory() -> tuple[str, ...]:
    from .._util.memory import available_bytes
    from .._util.tree import human_bytes

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    available = available_bytes()
    if available is None:
        return "ok", f"{cores} cores; free memory cannot be read on this system"
    text = f"{human_bytes(available)} free, {cores} core{'s'[: cores != 1]}"
    if available < LITTLE:
        return "warn", text, "close other programs, or fit fewer rows at once"
    return "ok", text


def cache() -> tuple[str, ...]:
    import jax

    place = getattr(jax.config, "jax_compilation_cache_dir", None)
    if not place:
        advice = 'export JAX_COMPILATION_CACHE_DIR="$HOME/.cache/jax" makes later runs start faster'
        return "warn", "compiled programs are not kept", advice
    folder = Path(place)
    above = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        return "warn", f"{place} cannot be written", "set JAX_COMPILATION_CACHE_DIR to your own"
    programs = sum(1 for _ in folder.glob("*-cache")) if folder.is_dir() else 0
    return "ok", f"{place}, {programs:,} programs"


def data() -> tuple[str, ...]:
    given = os.environ.get("POSTERAX_DATA")
    if not given:
        return "ok", "POSTERAX_DATA is not set (bandits and experiments look there)"
    if not Path(given).is_dir():
        advice = "set it to the folder of the data sets, or unset it"
        return "warn", f"POSTERAX_DATA: {given} is not a directory", advice
    sets = sum(1 for _ in Path(given).iterdir())
    return "ok", f"{given}, {sets} entries"


# -- what it computes


def _model(*hidden: int) -> tuple["Model", "np.ndarray", "np.ndarray"]:
    """A model with known noise and 24 rows; without hidden units its posterior is exact."""
    import numpy as np

    from .. import likelihoods, networks, priors
    from ..model import Model

    random = np.random.default_rng(0)
    x = random.normal(size=(24, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0]) + 0.5 + 0.3 * random.normal(size=24)).astype(np.float32)
    network = networks.MLP(2, 1, hidden, key=0)
    return Model(network, priors.Gaussian(1.0), likelihoods.Gaussian(0.3)), x, y


def closed_form() -> tuple[str, ...]:
    """The posterior of a linear model beside ridge regression in float64."""
    import jax
    import numpy as np

    from ..fitting.fit import fit
    from ..infer import Conjugate

    model, x, y = _model()
    mean, std = fit(model, (x, y), Conjugate(), key=0).moments()
    computed = [np.concatenate([np.ravel(a) for a in jax.tree.leaves(t)]) for t in (mean, std)]
    design = np.column_stack([x.astype(np.float64), np.ones(len(x))])
    covariance = np.linalg.inv(design.T @ design / 0.3**2 + np.eye(3))
    exact = [covariance @ design.T @ y.astype(np.float64) / 0.3**2, np.sqrt(np.diag(covariance))]
    apart = max(float(np.max(np.abs(a - b))) for a, b in zip(computed, exact, strict=True))
    said = f"posterior of a linear model within {apart:.0e} of its closed form"
    if not apart < 1e-3:
        return "fail", said, "another JAX version may help; please report this"
    return "ok", said


def gradients() -> tuple[str, ...]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    from .. import networks
    from ..fitting.fit import fit
    from ..infer import BayesByBackprop

    model, x, y = _model(16)
    network = networks.MLP(2, 1, (16,), key=0)
    posterior = fit(model, (x, y), BayesByBackprop(), steps=20, key=0)
    finite = all(bool(np.isfinite(v).all()) for v in posterior.history.values())
    forward = lambda m: jnp.sum(jnp.square(jax.vmap(m)(x)))  # noqa: E731
    slopes = jax.tree.leaves(eqx.filter(eqx.filter_grad(forward)(network), eqx.is_array))
    if not finite or not all(bool(jnp.isfinite(s).all()) for s in slopes):
        return "fail", "not finite", "another JAX version may help; please report this"
    return "ok", "finite, and so are 20 steps of Bayes by Backprop"


def files() -> tuple[str, ...]:
    """A posterior goes to disk and comes back with the same bits."""
    import jax
    import numpy as np

    from ..files.saved import load
    from ..fitting.fit import fit
    from ..infer import Conjugate

    model, x, y = _model()
    posterior = fit(model, (x, y), Conjugate(), key=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "line.px"
        posterior.save(path)
        size, back = path.stat().st_size, load(path)
    pairs = zip(*(jax.tree.leaves(p.sample(1, 4)) for p in (posterior, back)), strict=True)
    same = all(np.array_equal(a, b) for a, b in pairs)
    same &= np.array_equal(posterior.predict(x, key=1).mean, back.predict(x, key=1).mean)
    if not same:
        return "fail", "a saved posterior is not what it was", "please report this"
    return "ok", f"a posterior of {size:,} bytes is the same after saving and loading"


def speed() -> tuple[str, ...]:
    """A step of Bayes by Backprop on a small network, without compilation."""
    from ..fitting.fit import fit
    from ..infer import BayesByBackprop

    model, x, y = _model(50, 50)
    seconds = []
    for steps in (256, 256, 512):  # the first compiles
        began = time.perf_counter()
        fit(model, (x, y), BayesByBackprop(), steps=steps, key=0)
        seconds.append(time.perf_counter() - began)
    each = max(seconds[2] - seconds[1], 0.0) / 256 or seconds[2] / 512
    said = f"{1e6 * each:,.0f} µs a step of Bayes by Backprop (2,751 weights, 24 rows)"
    return ("warn", said, "other programs may be busy") if each > SLOW else ("ok", said)


ALL: tuple[Callable[[], tuple[str, ...]], ...] = (
    *(posterax, packages, extras, devices, memory, cache, data),
    *(closed_form, gradients, files, speed),
)
CHECKS = {check.__name__.replace("_", " "): check for check in ALL}
