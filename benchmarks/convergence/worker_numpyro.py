"""Worker: NumPyro's SVI with AutoNormal, minibatches in a compiled loop."""

import itertools
import json
import sys
from functools import partial
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO, init_to_value
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import Adam

from benchmarks.convergence import clock, readout

CHUNK = 50  # steps of a compiled loop
SCALE = 0.01  # where deviations start


def shapes_of(layers):
    """Shapes by site; matrices are (inputs, outputs), as JAX's users have them."""
    found = {}
    for i, (kind, *sizes) in enumerate(layer for layer in layers if len(layer) > 1):
        weight = {"linear": tuple(sizes), "conv": (*sizes[::-1], 3, 3), "layer_norm": tuple(sizes)}
        found[f"layers.{i}.weight"], found[f"layers.{i}.bias"] = weight[kind], (sizes[-1],)
    return found


def start_of(layers, seed):
    """He's weights, zero biases."""
    rng, start = np.random.default_rng(seed), {}
    kinds = [layer[0] for layer in layers if len(layer) > 1]
    for name, shape in shapes_of(layers).items():
        kind = kinds[int(name.split(".")[1])]
        fan = shape[0] if kind == "linear" else int(np.prod(shape[1:]))
        if name.endswith("bias"):
            start[name] = jnp.zeros(shape)
        elif kind == "layer_norm":
            start[name] = jnp.ones(shape)
        else:
            start[name] = jnp.asarray(rng.normal(0, (2 / fan) ** 0.5, shape), jnp.float32)
    return start


def forward(layers, w, x):
    """The network's outputs."""
    i = 0
    for kind, *sizes in layers:
        weight, bias = (w.get(f"layers.{i}.{part}") for part in ("weight", "bias"))
        i += bool(sizes)
        if kind == "linear":
            x = x @ weight + bias
        elif kind == "conv":
            x = jax.lax.conv(x, weight, (1, 1), "SAME") + bias[:, None, None]
        elif kind == "layer_norm":
            mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            x = (x - mean) / jnp.sqrt(var + 1e-5) * weight + bias
        elif kind == "relu":
            x = jax.nn.relu(x)
        elif kind == "pool":
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        else:
            x = x.reshape(len(x), -1)
    return x


def make_model(spec):
    """The probabilistic program."""
    if spec["mixture"]:
        pi, wide, narrow = spec["mixture"]
        parts = dist.Normal(0.0, jnp.array([wide, narrow]))
        prior = dist.MixtureSameFamily(dist.Categorical(jnp.array([pi, 1 - pi])), parts)
    else:
        prior = dist.Normal(0.0, 1.0)

    def model(x, y):
        w = {
            name: numpyro.sample(name, prior.expand(shape).to_event(len(shape)))
            for name, shape in shapes_of(spec["layers"]).items()
        }
        outputs = forward(spec["layers"], w, x)
        with numpyro.plate("data", spec["rows"], subsample_size=len(x)):
            if spec["likelihood"] == "gaussian":
                numpyro.sample("y", dist.Normal(outputs[:, 0], spec["noise"]), obs=y)
            elif spec["likelihood"] == "bernoulli":
                numpyro.sample("y", dist.Bernoulli(logits=outputs[:, 0]), obs=y)
            else:
                numpyro.sample("y", dist.Categorical(logits=outputs), obs=y)

    return model


def main():
    """Train until the time is over."""
    asked, folder = json.loads(sys.argv[1]), sys.argv[2]
    spec, size = asked["spec"], asked["spec"]["batch_size"]
    stored = np.load(asked["data"])
    x, y = jnp.asarray(stored["x"]), jnp.asarray(stored["y"])
    jax.devices()
    timer = clock.Clock(folder, asked["limit"], asked["target"])
    model = make_model(spec)
    start = init_to_value(values=start_of(spec["layers"], asked["seed"]))
    guide = AutoNormal(model, init_loc_fn=start, init_scale=SCALE)
    # closed forms where there are some
    bound = Trace_ELBO() if spec["mixture"] else TraceMeanField_ELBO()
    svi = SVI(model, guide, Adam(asked["learning_rate"]), bound)
    # whole minibatches alone: a compiled loop needs one shape
    size = min(size, spec["rows"])
    whole = (o for o in clock.orders(spec["rows"], size, asked["seed"]) if len(o) == size)
    # compiled: as it stands in NumPyro's examples it takes many times as long
    state = jax.jit(svi.init)(jax.random.key(asked["seed"]), x[:size], y[:size])

    @partial(jax.jit, donate_argnums=0)
    def chunk(state, x, y, orders):
        def step(state, order):
            return svi.update(state, x[order], y[order])[0], None

        return jax.lax.scan(step, state, orders)[0]

    evaluate = jax.jit(lambda state, key, x, y: svi.evaluate(state._replace(rng_key=key), x, y))
    fresh = map(jax.random.key, itertools.count(asked["seed"] + 1))
    few = slice(0, clock.CHECK_ROWS)

    def own(state, x, y):
        return -float(evaluate(state, next(fresh), x, y)) / spec["rows"]

    steps = 0
    while not timer.over:
        state = jax.block_until_ready(
            chunk(state, x, y, np.stack(list(itertools.islice(whole, CHUNK))))
        )
        steps += CHUNK
        if timer.due:
            params = {k: np.asarray(v) for k, v in svi.get_params(state).items()}
            check = partial(own, state, x[few], y[few])
            timer.save(*readout.read("numpyro", params, spec["layers"]), steps, check)
    said = {
        "points": timer.points,
        "own_per_row": float(
            np.mean([own(state, x, y) for _ in range(clock.own_draws(spec["rows"]))])
        ),
        "versions": {name: metadata.version(name) for name in ("jax", "numpyro")},
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
