"""``fit``: one loop for all methods, with progress, checkpoints, resuming and Ctrl-C."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from .._util.checks import whole_number
from .._util.interrupts import interruptible
from .._util.keys import KeyLike, as_key
from .._util.progress import Bar
from ..infer.base import Method
from ..model import Model
from ..posteriors import Posterior
from . import resume as again
from .bounds import Until
from .callbacks import Event
from .checkpoint import Checkpoint, as_checkpoint
from .choice import choose_method
from .lengths import can_hold_out, choose_length
from .prepare import DEFAULT_BATCH, Asked, check_method, check_model, prepare
from .run import Run
from .validation import Validation, check_validation


def fit(
    model: Model,
    data: Any,
    method: Method | None = None,
    *,
    epochs: float | Literal["auto"] | None = None,
    steps: int | None = None,
    time_limit: float | None = None,
    batch_size: int | None = None,
    augment: Any = None,
    key: KeyLike = 0,
    init: Any = None,
    resume: Posterior | None = None,
    progress: bool | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    callbacks: Iterable[Callable[[Event], Any]] = (),
    validation: Validation | tuple[Any, Any] | None = None,
    thin: int = 1,
    draw_bytes: int | None = None,
) -> Posterior:
    """Infer the posterior of a model's parameters.

    Args:
        model: network + prior + likelihood.
        data: ``(x, y)`` or ``(x, y, weight)``, or a re-iterable source of such batches.
        method: an inference method, for instance ``px.BayesByBackprop()``. Without one: chains,
            ``px.MCLMC()``, where rows × weights are at most a million, every weight has a prior
            and nothing asks for minibatches; else an ensemble of variational fits,
            ``px.DeepEnsemble(inside=px.BayesByBackprop())``. ``posterior.record`` has its name.
        epochs: passes over the data, for methods that optimise. ``"auto"``, which is the default:
            for ``px.BayesByBackprop`` and ``px.IVON`` until the ELBO has settled; for points,
            ensembles, dropout, SWAG and Laplace as many steps as held-out rows choose, and then a
            fit on all rows, of which alone callbacks hear. Where that cannot be (streams, fewer
            than 50 rows, ``init=``, ``validation=``) 100, and as many more as make 2000 steps.
        steps: steps of optimisation, or draws retained per chain (default 1000).
        time_limit: seconds after which ``epochs="auto"`` does not make the fit longer.
        batch_size: examples per step (default 128, or all where the method needs all).
        augment: random changes of each minibatch's inputs, such as ``px.augment.Shift(4)``: one,
            a list in order, or any function ``(key, x) → x``; never in validation or prediction.
        key: an int or a JAX key; the same key gives the same posterior.
        init: where to start: an earlier posterior, a trained network, or parameters.
        resume: a posterior to continue for more epochs or steps, optimiser state and all.
        progress: show a bar (default: where someone is watching).
        checkpoint: a directory (or ``px.Checkpoint(directory, every=…)``); the same call resumes
            from it after any interruption.
        callbacks: functions of an ``Event``, called between chunks of steps.
        validation: held-out ``(x, y)`` to watch, or a ``px.Validation`` to stop early with.
        thin: keep every ``thin``-th draw.
        draw_bytes: keep at most so many bytes of draws: whenever there are more, every other one
            is dropped (``px.callbacks.RunningPredictive`` sees them all).

    Returns:
        A posterior. Ctrl-C ends the fit and returns what there is.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(0, 1, 50)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (8,), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1),
        ... )
        >>> posterior = px.fit(model, (x, x), px.MaximumAPosteriori(1e-2), epochs=20, key=0)
        >>> len(posterior.history["nll"])
        20
    """
    thin, where = whole_number("thin", thin), as_checkpoint(checkpoint)
    check_model(model)
    if method is None:
        if resume is not None:
            raise ValueError("resume: name the method that goes on, as the third argument of fit")
        asks = (epochs, time_limit, batch_size, augment, validation)
        method = choose_method(model, data, minibatches=any(a is not None for a in asks))
    check_method(model, method)
    if draw_bytes is not None:
        draw_bytes = whole_number("draw_bytes", draw_bytes, most=2**63 - 1)
    key, told = as_key(key), {}
    free = steps is None and resume is None and (epochs is None or epochs == "auto")
    with interruptible() as interrupted:
        if free and init is None and (epochs or validation is None) and can_hold_out(data, method):
            if where is not None and time_limit is not None:
                raise ValueError(
                    "time_limit: with checkpoint= the same call has to choose the same length, "
                    "whatever the clock says; give one of them, or steps="
                )
            options = {"augment": augment, "key": key, "progress": progress}
            train = partial(_trial, model, method, len(data[1]), batch_size, **options)
            chosen = choose_length(model, data, batch_size, train, key, time_limit, interrupted)
            if chosen.interrupted is not None:
                return chosen.interrupted
            epochs, steps, time_limit, told = None, chosen.steps, None, chosen.told()
        asked = Asked(epochs, steps, batch_size, time_limit, resume is not None, validation)
        ready = prepare(model, data, method, asked, augment)._replace(told=told)
        watch = check_validation(validation, ready.model)
        until = Until(time_limit) if ready.auto else None
        run = Run(ready, method, key, thin, watch, list(callbacks), init, draw_bytes, until)
        if resume is not None:
            again.from_posterior(run, resume)
        with again.checkpointed(run, where), Bar(progress) as bar:
            return run.all_phases(bar, interrupted)


def _trial(
    model: Model, method: Method, rows: int, batch_size: int | None, data: Any, steps: int,
    **options: Any,
) -> Posterior:  # fmt: skip
    """A fit without some rows, to see how long is good; the fit on all rows warns of what it is."""
    left = len(data[1])
    if left < rows:  # where they are gone, and not of weight 0
        batch_size = min(batch_size or DEFAULT_BATCH, left // method.needs.batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, data, method, steps=steps, batch_size=batch_size, **options)
