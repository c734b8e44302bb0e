"""Agents in files: arrays and settings by name, as posteriors are saved. Loading runs no code."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.fingerprint import settings_fingerprint
from .._version import __version__
from ..errors import CheckpointError
from ..files import named as by_name
from ..files import saved as files
from ..files.bounds import check_config, check_count, check_size, field, named, numbers_held
from ..files.container import (
    FORMAT,
    Arrays,
    circumstances,
    pack,
    read,
    refuse_not_finite,
    refusing,
    unpack,
    write,
)
from ..likelihoods import Likelihood
from ..posteriors import Posterior
from ..priors import Prior
from .base import Policy
from .learner import learner_of
from .linear import LinearThompson
from .live import Agent
from .loop import first_state
from .neural import Neural, own_copy
from .policies import UCB, EpsilonGreedy, Greedy, Thompson, Uniform

Header = dict[str, Any]

# what may be made from a file: these names and no others
_POLICIES = (EpsilonGreedy, Greedy, LinearThompson, Thompson, UCB, Uniform)
_KNOWN: dict[str, Any] = {
    "policy": {kind.__name__: kind for kind in _POLICIES},
    "method": by_name.METHODS,
}
SIZES, COUNTS = ("features", "actions"), ("choices", "updates")
# settings that came after the first files, and what those files meant by having none
_LATER = {"random_first": 0}


class _Own(Exception):
    """Something of the user's own, which a file cannot hold."""


def save(agent: Agent, path: Path) -> None:
    """Write an agent; an interrupted call leaves what was there."""
    about = {"policy": _settings(agent.policy), "fingerprint": _fingerprint(agent.policy)}
    about |= {name: getattr(agent, name) for name in (*SIZES, *COUNTS)}
    state, learned = _apart(agent.state)
    arrays = pack(state, "agent") | pack(agent.course, "course")
    if learned is not None:
        files.save(learned, path, {"agent": about}, arrays)
    else:
        header = {"format": FORMAT, "posterax": __version__, "agent": about}
        write(path, arrays, header | {"written": circumstances()})


def load(path: str | Path, *, policy: Policy | None = None) -> Agent:
    """Read an agent that was saved; it goes on as if it had never stopped.

    Args:
        path: the file.
        policy: the same policy again, where its network, prior, optimiser or itself is the user's
            own; it is checked against the file's.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import posterax as px
        >>> policy = px.bandits.Thompson(hidden=(8,), buffer=32, batch_size=8, updates=4)
        >>> agent = px.bandits.Agent(policy, features=3, actions=2, key=0)
        >>> agent.update(np.ones(3), 0, 1.0)
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "agent.px"
        >>> agent.save(file)
        >>> same = px.bandits.load(file)
        >>> same.choose(np.ones(3)) == agent.choose(np.ones(3))
        True
    """
    path = Path(path)
    arrays, header = read(path)
    with refusing(path):
        about = header.get("agent")
        if not isinstance(about, dict):
            raise CheckpointError("holds no agent; px.load reads posteriors")
        stored = field(about, "policy", dict, type(None))
        if policy is None and stored is None:
            raise CheckpointError(
                "its policy is of your own making, or has a network or optimiser that is; "
                "make the same one and call px.bandits.load(path, policy=policy)"
            )
        made: Any = None if stored is None else _make(stored, arrays)
        if policy is not None:
            # made again from the file, so that settings which came later have their defaults
            known = about["fingerprint"] if stored is None else _settings(made)
            if known != (_fingerprint(policy) if stored is None else _settings(policy)):
                raise CheckpointError("policy has other settings than the one that was saved")
        policy = made if policy is None else policy
        if not isinstance(policy, Policy):
            raise CheckpointError(f"its policy is a {type(policy).__name__}")
        features, actions = (whole_number(n, field(about, n, int)) for n in SIZES)
        _check_sizes(policy, features, actions, arrays)
        agent = Agent(policy, features, actions)
        for name in COUNTS:
            setattr(agent, name, whole_number(name, about[name], least=0))
        agent.course = unpack(agent.course, arrays, "course")
        refuse_not_finite({n: a for n, a in arrays.items() if n.startswith("agent/")})
        state = unpack(_apart(agent.state)[0], arrays, "agent")
        if "posterior" in header:
            assert isinstance(policy, Neural)
            model = learner_of(policy, agent.features, agent.actions).model
            posterior = files.rebuild(arrays, header, model).bare()
            state = state._replace(learned=own_copy(posterior))
        agent.state = state
        return agent


def _check_sizes(policy: Policy, features: int, actions: int, arrays: Arrays) -> None:
    """Refuse what would take far more memory than the file holds, before it is made."""
    if isinstance(policy, Neural):
        wide = features + 2 * actions
        hidden = check_config({"hidden": list(policy.hidden)}, _most_layers(arrays))["hidden"]
        hidden = [whole_number("hidden", size) for size in hidden]
        check_count("its network", _weights([wide, *hidden, wide]), arrays)
        # no more hidden layers than what was learned has arrays, or numbers, for
        sizes = _learned_sizes(arrays) if policy.network is None else []
        if sizes and 2 * len(hidden) > len(sizes) and _weights([1, *hidden, 1]) > max(sizes):
            raise CheckpointError(f"{len(hidden):,} hidden layers are not what it learned")
        check_count("its samples", policy.samples * actions, arrays)
        for name in ("buffer", "batch_size"):
            check_count(f"its {name}", getattr(policy, name) * wide, arrays)
    elif isinstance(policy, LinearThompson):
        check_count("its matrices", actions * (features + 1) ** 2, arrays)
    check_count("its counts", features + actions, arrays)
    state = eqx.filter_eval_shape(first_state, policy, features, actions, jax.random.key(0))
    check_size("its state", state, arrays)


def _learned_sizes(arrays: Arrays) -> list[int]:
    return [array.size for name, array in arrays.items() if "/learned." in name]


def _most_layers(arrays: Arrays) -> int:
    """As many as there are arrays of weights; or, where all weights are one array, weights."""
    sizes = _learned_sizes(arrays)
    return max(len(sizes), *sizes) if sizes else numbers_held(arrays)


def _weights(sizes: list[int]) -> int:
    return sum((a + 1) * b for a, b in pairwise(sizes))


def _apart(state: PyTree) -> tuple[PyTree, Posterior | None]:
    """A state, and the posterior in it where a fit has put one there."""
    learned = getattr(state, "learned", None)
    if not isinstance(learned, Posterior):
        return state, None
    return state._replace(learned=None), learned


# -- settings by name


def _settings(policy: Policy) -> Header | None:
    """A policy in JSON, or ``None`` where something in it is the user's own."""
    try:
        return json.loads(json.dumps(_describe(policy), default=_number))
    except _Own:
        return None


def _fingerprint(policy: Policy) -> str:
    """What recognises a policy of the user's own; settings that came later count where set."""
    neural = lambda node: isinstance(node, Neural)  # noqa: E731

    def counted(node: PyTree) -> PyTree:
        unset = [n for n, before in _LATER.items() if neural(node) and getattr(node, n) == before]
        if not unset:
            return node
        return eqx.tree_at(lambda p: [getattr(p, n) for n in unset], node, [None] * len(unset))

    # of what is at its default a repr says nothing
    return settings_fingerprint(policy, jax.tree.map(counted, policy, is_leaf=neural))


def _number(value: Any) -> Any:
    """A number of numpy's or JAX's own type, as Python has it."""
    if isinstance(value, np.generic | np.ndarray | jax.Array) and np.ndim(value) == 0:
        return np.asarray(value).item()
    raise _Own


def _describe(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | np.generic | jax.Array):
        return value  # numbers of numpy's or JAX's own types are Python's once they are JSON
    if isinstance(value, tuple | list):
        return {"tuple": [_describe(v) for v in value]}
    name = type(value).__name__
    if isinstance(value, Prior):
        node = {"prior": by_name.describe_prior(value)}
    elif isinstance(value, Likelihood):
        node = {"likelihood": by_name.as_call(value, by_name.LIKELIHOODS, skip=("cholesky",))}
    elif kind := next((k for k, known in _KNOWN.items() if known.get(name) is type(value)), None):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        node = {kind: name, "with": {n: _describe(getattr(value, n)) for n in fields}}
    elif (config := by_name.config_of(value)) is not None:
        node = {"network": name, "with": config}
    else:
        raise _Own
    if None in node.values():
        raise _Own
    return node


def _make(node: Any, arrays: Arrays) -> Any:
    if not isinstance(node, dict):
        return node
    if "tuple" in node:
        return tuple(_make(v, arrays) for v in field(node, "tuple", list))
    if "prior" in node:
        return by_name.make_prior(node["prior"])
    if "likelihood" in node:
        return by_name.make_likelihood(node["likelihood"])
    if "network" in node:
        stored = {"name": node["network"], "config": node["with"]}
        return by_name.make_network(stored, arrays, _most_layers(arrays))
    kind = "policy" if "policy" in node else "method"
    make = named(_KNOWN[kind], {"name": node.get(kind)}, kind)
    settings = field(node, "with", dict)
    return make(**{name: _make(v, arrays) for name, v in settings.items()})
