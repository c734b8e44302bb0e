"""Files: a posterior in one safetensors file with a JSON header. Loading runs no code.

Networks of ``px.networks``, priors, likelihoods and posteriors are stored by name with their
settings; a network of the user's own is stored by a fingerprint and needs ``model=`` to load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import posteriors
from .._version import __version__
from ..errors import CheckpointError
from ..model import Model
from ..networks.parts import FrozenNetwork
from ..networks.sparse import SparseNetwork
from ..posteriors import Evidence, Posterior, Record
from .bounds import check_posterior, check_size, field, float_type, named, target_shapes, texts
from .container import FORMAT, Arrays, circumstances, pack, read, shortened, write
from .models import describe_model, make_model, make_sparse
from .named import by_name
from .nodes import like, restore, store
from .recognise import check_model, check_parts

# what may be made from a file: these names and no others
_POSTERIORS = by_name(
    posteriors,
    *("Enumerated", "Factorized", "FullGaussian", "GaussianMixture", "LaplaceGaussian"),
    *("LowRankGaussian", "MeanFieldGaussian", "Draws", "DropoutPosterior", "Point"),
    *("PriorPosterior", "Radial", "WeightedDraws"),
)
# what makes more of a posterior where the header has such an entry: imported when it is needed,
# since it stands above this room
_REBUILDERS = {"estimator": "posterax.tables.saved"}


def save(
    posterior: Posterior,
    path: str | Path,
    more: dict[str, Any] | None = None,
    more_arrays: Arrays | None = None,
) -> None:
    """Write a posterior to one file, whole or not at all; ``more`` is what an estimator adds."""
    path = Path(path)
    model = posterior.model
    arrays: Arrays = dict(more_arrays or {})
    family = {
        name: store(value, name, arrays, model)
        for name, value in vars(posterior).items()
        if name not in ("model", "state", "targets", "record", "evidence")
    }
    arrays |= pack(posterior.state, "state")
    record = posterior.record or Record()
    arrays |= {f"history/{name}": np.asarray(v) for name, v in record.terms.items()}
    for name, (steps, values) in record.reports.items():
        arrays |= {f"report_steps/{name}": steps, f"reports/{name}": values}
    header = {
        "format": FORMAT,
        "posterax": __version__,
        "posterior": type(posterior).__name__,
        "family": family,
        "targets": list(map(list, posterior.targets)),
        "dtype": str(jax.tree.leaves(model.parameters)[0].dtype),
        "model": describe_model(model, arrays),
        "method": record.method,
        "history": list(record.terms),
        "reports": list(record.reports),
        "settings": record.settings,
        "interrupted": record.interrupted,
        "evidence": posterior.evidence,
        "written": circumstances(),
    } | (more or {})
    write(path, arrays, header)


def load(path: str | Path, *, model: Model | None = None) -> Any:
    """Read a posterior, or an estimator, that was saved.

    Args:
        path: the file.
        model: the model, where its network, prior or likelihood is the user's own; its tree is
            checked against the file's.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(0, 1, 8)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (4,), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1),
        ... )
        >>> posterior = px.fit(model, (x, x), px.BayesByBackprop(), epochs=2, key=0)
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "line.px"
        >>> posterior.save(file)
        >>> same = px.load(file)
        >>> bool((same.predict(x, key=1).mean == posterior.predict(x, key=1).mean).all())
        True
    """
    path = Path(path)
    if not (model is None or isinstance(model, Model)):
        raise TypeError(f"model must be a px.Model, got {type(model).__name__}")
    arrays, header = opened(path)
    if "agent" in header:
        raise CheckpointError(f"{path}: holds an agent; px.bandits.load(path) reads it")
    with refusing(path):
        posterior = rebuild(arrays, header, model, path)
        for entry, module in _REBUILDERS.items():
            if entry in header:
                rebuilder = import_module(module)
                return rebuilder.rebuild(posterior, header[entry], arrays, path)
        return posterior


def about(path: str | Path) -> dict[str, Any]:
    """What a file says of itself: its header, checked against its digest; nothing is built.

    ``written`` has the versions, the time and the device; ``method`` and ``settings`` say how it
    was fitted. Files of posterax 0.1 have no ``written``.

    Example:
        >>> import pathlib, tempfile
        >>> import posterax as px
        >>> from posterax import files
        >>> mlp = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(mlp, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "prior.px"
        >>> px.prior_posterior(model, [[0.0]]).save(file)
        >>> files.about(file)["model"]["network"]["name"]
        'MLP'
    """
    return opened(Path(path))[1]


def opened(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and header of a file that is there."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no file"
        raise CheckpointError(f"{path}: is {kind}; give the file that save wrote")
    return read(path)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside is the file's fault, and said so in a line."""
    try:
        yield
    except (CheckpointError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: damaged or inconsistent ({type(error).__name__}: {shortened(error)})"
        ) from error


def rebuild(arrays: Arrays, header: dict[str, Any], model: Model | None, path: Path) -> Posterior:
    """The posterior of what was read from a file."""
    targets = target_shapes(header, path)
    # a file of float64 is read as float32 where JAX has no other
    dtype = jax.dtypes.canonicalize_dtype(float_type(header, path))
    stored = field(header, "model", dict, path=path)
    by_name = model is None
    if model is None:
        model = make_model(header, arrays, targets, dtype, path)
    else:
        check_model(model, header, path)
        model = make_sparse(model, arrays, path)
    likelihood = model.likelihood
    own = jax.eval_shape(lambda: likelihood.init(targets.inner))
    check_size("the parameters of the likelihood", own, arrays, path)
    model = model.for_targets(targets.inner, dtype)
    inner = model.network.dense()
    if isinstance(inner, FrozenNetwork):
        fixed = like(inner.fixed, arrays, "fixed", path, dtype, drawn=False)
        where = lambda m: m.network.fixed  # noqa: E731
        if isinstance(model.network, SparseNetwork):
            where = lambda m: m.network.network.fixed  # noqa: E731
        model = eqx.tree_at(where, model, fixed)
    if by_name:
        check_parts(model, stored, path)
    made = named(_POSTERIORS, {"name": header.get("posterior")}, "posterior", path)
    family = {
        name: restore(node, arrays, model, path)
        for name, node in field(header, "family", dict, path=path).items()
    }
    state = like(model.network.state, arrays, "state", path, dtype)
    history = {name: arrays[f"history/{name}"] for name in texts(header, "history", path)}
    record = Record(
        field(header, "method", str, path=path),
        field(header, "settings", dict, path=path),
        history,
        # the first files have neither
        reports={
            name: (arrays[f"report_steps/{name}"], arrays[f"reports/{name}"])
            for name in texts({"reports": []} | header, "reports", path)
        },
        interrupted=field({"interrupted": False} | header, "interrupted", bool, path=path),
    )
    posterior = made(model, state, targets, record=record, evidence=_evidence(header), **family)
    check_posterior(posterior, path)
    return posterior


def _evidence(header: dict[str, Any]) -> Evidence | None:
    known = header.get("evidence")
    if known is None:
        return None
    types = [int | float, int | float, str][: max(2, len(known))]  # the first files have no kind
    good = isinstance(known, list) and all(map(isinstance, known, types))
    if not good or any(isinstance(value, bool) for value in known):  # True is an int in Python
        raise ValueError(f"evidence {known}")
    return Evidence(float(known[0]), float(known[1]), *known[2:])
