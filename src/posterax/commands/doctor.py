"""``posterax doctor``: is everything here, and does it compute what it should?

Each check tells what it found, and what to do about it.
"""

import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .._version import __version__
from . import one_line
from .options import AsJson
from .showing import console, print_json

if TYPE_CHECKING:
    import numpy as np

    from ..model import Model
    from ..posteriors import Posterior

SHOWN = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "pandas", "equinox", "numpyro")
EXTRAS = {  # module → the extra that brings it, and what for
    "pyarrow": ("parquet", "Parquet files"),
    "flax": ("flax", "networks of Flax"),
    "tensorboardX": ("tensorboard", "px.callbacks.TensorBoard"),
}
LITTLE = 2**30  # bytes of free memory
STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
REPORT = "another JAX version may help; please report this"
SLOW = 0.1  # seconds for one step of a small network


def doctor(as_json: AsJson = False) -> None:
    """Check versions, devices and settings, and compute a few answers that are known.

    The exit code is 1 if a check fails; warnings do not change the exit code.

    Examples:
        posterax doctor
        posterax doctor --json
    """
    done, page = [], console()
    page.quiet = as_json
    page.print(f"{'':4}  {'check':<14} what was found", style="dim")
    for name, check in CHECKS.items():
        try:
            state, result, *advice = check()
        except Exception as error:  # whatever it is, the check has failed
            state, result = "fail", f"{type(error).__name__}: {error}"
            advice = ["install posterax again, in an environment of its own"]
        line = {"name": name, "state": state, "found": one_line(result), "advice": " ".join(advice)}
        done.append(line)
        page.print(f"{state:<4}", style=STYLES[state], end="")
        page.print(f"  {name:<14} {line['found']}", soft_wrap=True)
        if advice:
            page.print(f"{'':21}→ {line['advice']}", soft_wrap=True)
    states = [line["state"] for line in done]
    failed, warned = states.count("fail"), states.count("warn")
    if as_json:
        print_json({"ok": not failed, "checks": done})
    counts = f"{len(done)} checks, {warned} with a warning, {failed} failed"
    page.print(f"\n{counts}" if failed or warned else f"\nall {len(done)} checks are fine")
    if failed:
        raise typer.Exit(1)


# -- what is here: each gives a state (ok, warn or fail), what it found, and where needed advice


def posterax() -> tuple[str, ...]:
    system = platform.platform(terse=True)
    return "ok", f"{__version__}, Python {platform.python_version()}, {system}"


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

    from .._util.program_cache import cache_folder

    place = getattr(jax.config, "jax_compilation_cache_dir", None) or cache_folder()
    if not place:
        advice = "JAX_COMPILATION_CACHE_DIR names a folder of yours: later runs start faster"
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


def _fitted(*hidden: int, steps: int | None = None) -> tuple["Posterior", "np.ndarray"]:
    """The posterior of ``_model``, by Bayes by Backprop where it has hidden units, and its x."""
    from .. import infer
    from ..fitting.fit import fit

    model, x, y = _model(*hidden)
    method = infer.BayesByBackprop() if hidden else infer.Conjugate()
    return fit(model, (x, y), method, steps=steps, key=0), x


def closed_form() -> tuple[str, ...]:
    """The posterior of a linear model beside ridge regression in float64."""
    import jax
    import numpy as np

    _, x, y = _model()
    mean, std = _fitted()[0].moments()
    computed = [np.concatenate([np.ravel(a) for a in jax.tree.leaves(t)]) for t in (mean, std)]
    design = np.column_stack([x.astype(np.float64), np.ones(len(x))])
    covariance = np.linalg.inv(design.T @ design / 0.3**2 + np.eye(3))
    exact = [covariance @ design.T @ y.astype(np.float64) / 0.3**2, np.sqrt(np.diag(covariance))]
    apart = np.max(np.abs(np.subtract(computed, exact)))
    said = f"posterior of a linear model within {apart:.0e} of its closed form"
    return ("ok", said) if apart < 1e-3 else ("fail", said, REPORT)


def gradients() -> tuple[str, ...]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    from .. import networks

    posterior, x = _fitted(16, steps=20)
    network = networks.MLP(2, 1, (16,), key=0)
    forward = lambda m: jnp.sum(jnp.square(jax.vmap(m)(x)))  # noqa: E731
    slopes = jax.tree.leaves(eqx.filter(eqx.filter_grad(forward)(network), eqx.is_array))
    if not all(np.isfinite(v).all() for v in (*posterior.history.values(), *slopes)):
        return "fail", "not finite", REPORT
    return "ok", "finite, and so are 20 steps of Bayes by Backprop"


def files() -> tuple[str, ...]:
    """A posterior goes to disk and comes back with the same bits."""
    import jax
    import numpy as np

    from ..files.saved import load

    posterior, x = _fitted()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "line.px"
        posterior.save(path)
        size, back = path.stat().st_size, load(path)
    both = [jax.tree.leaves((p.sample(1, 4), p.predict(x, key=1).mean)) for p in (posterior, back)]
    if not all(np.array_equal(a, b) for a, b in zip(*both, strict=True)):
        return "fail", "a saved posterior is not what it was", "please report this"
    return "ok", f"a posterior of {size:,} bytes is the same after saving and loading"


def speed() -> tuple[str, ...]:
    """A step of Bayes by Backprop on a small network, without compilation."""
    seconds = []
    for steps in (256, 256, 512):  # the first compiles
        began = time.perf_counter()
        _fitted(50, 50, steps=steps)
        seconds.append(time.perf_counter() - began)
    each = max(seconds[2] - seconds[1], 0.0) / 256 or seconds[2] / 512
    said = f"{1e6 * each:,.0f} µs a step of Bayes by Backprop (2,751 weights, 24 rows)"
    return ("warn", said, "other programs may be busy") if each > SLOW else ("ok", said)


ALL: tuple[Callable[[], tuple[str, ...]], ...] = (
    *(posterax, packages, extras, devices, memory, cache, data),
    *(closed_form, gradients, files, speed),
)
CHECKS = {check.__name__.replace("_", " "): check for check in ALL}
