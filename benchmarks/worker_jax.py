"""Worker: posterax, and the deterministic JAX step it is measured against."""

import json
import os
import sys

from benchmarks import problem

if os.environ.get("BENCH_DEVICE", "cpu") == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: problem.THREADS])

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import posterax as px
from posterax.fitting import loop
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start

PRIORS = {
    "gaussian": px.priors.Gaussian(1.0),
    "mixture": px.priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=0.0025),
}


def network(name):
    if name in problem.NETWORKS:
        inputs, hidden, outputs = problem.NETWORKS[name]
        return px.networks.MLP(inputs, outputs, hidden, key=0)
    features, width, length = problem.FEATURES, problem.WIDTH, problem.LENGTH
    return {
        "LeNet-5": lambda: px.networks.LeNet5(key=0),
        "ResNet-20": lambda: px.networks.ResNet(20, key=0),
        "ResNet-18": lambda: px.networks.ResNet(18, key=0),
        "transformer": lambda: px.networks.Transformer(
            features, 10, width=width, heads=4, layers=3, length=length, key=0
        ),
        "LSTM": lambda: px.networks.Recurrent(features, 10, problem.HIDDEN, key=0),
    }[name]()


def model_of(name, prior, **options):
    """The network with a prior, and the likelihood that goes with its outputs."""
    one = problem.outputs(name) == 1
    likelihood = px.likelihoods.Gaussian(0.1) if one else px.likelihoods.Categorical()
    return px.Model(network(name), PRIORS[prior], likelihood, **options)


def deterministic_step(name, block_length=32, compute=None):
    """Adam on the mean loss in a compiled loop: what a plain network costs."""
    x, y = (jnp.asarray(a) for a in problem.data(name))
    params, static = eqx.partition(network(name), eqx.is_inexact_array)
    optimizer = optax.adam(1e-3)
    size = problem.batch_size(name)
    batches = len(y) // size

    def loss(params, x, y):
        if compute is not None:
            params, x = jax.tree.map(lambda a: a.astype(compute), (params, x))
        module = eqx.combine(params, static)
        out = jax.vmap(module)(x) if name in problem.OTHERS else module(x)
        out = out.astype(jnp.float32)
        if out.shape[-1] == 1:
            return jnp.mean((out - y) ** 2)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(out, y))

    def step(carry, i):
        params, state, order = carry
        index = jax.lax.dynamic_slice_in_dim(order, i % batches * size, size)
        grads = jax.grad(loss)(params, x[index], y[index])
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state, order), None

    order = jax.random.permutation(jax.random.key(0), len(y))
    carry = (params, optimizer.init(params), order)

    def block(carry, start):
        if block_length == 1:
            return step(carry, start)[0]
        return jax.lax.scan(step, carry, start + jnp.arange(block_length))[0]

    return _repeat(block, carry, block_length)


def _repeat(block, carry, length=32):
    """Run a compiled block of steps as often as needed."""
    compiled = jax.jit(block, donate_argnums=0)
    box = [jax.tree.map(lambda a: jnp.array(a, copy=True), carry)]

    def run(times):
        for i in range(-(-times // length)):
            box[0] = compiled(box[0], length * i)
        jax.block_until_ready(box[0])

    run.compiled = lambda: compiled.lower(box[0], 0).compile()
    return run


def bayes_step(name, prior, where=None, method=px.BayesByBackprop, compute=None, **options):
    """One step of ``px.fit``, by default with Bayes by Backprop, as fit runs it."""
    model = model_of(name, prior, where=where, compute_dtype=compute)
    method = method(**options)
    asked = Asked(None, 1_000_000, problem.batch_size(name))
    ready = prepare(model, problem.data(name), method, asked)
    phase = method.phases(ready.model, ready.plan)[0]
    key = jax.random.key(0)
    state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
    state = jax.tree.map(lambda a: jnp.array(a, copy=True), state)
    buffers = loop.make_buffers(loop.abstract_info(phase, state, ready.data, key), 2048, 0)
    box = [state, buffers, 0]

    def run(times):
        while times > 0:
            n = min(times, 2048)
            start, stop = (jnp.asarray(box[2] + i, jnp.int32) for i in (0, n))
            fixed = (phase, ready.data, key, start, stop, 1, loop.block_length(phase, box[0]))
            chunk = loop.run_chunk(fixed, box[0], box[1])
            chunk.taken.block_until_ready()
            box[:] = chunk.state, chunk.buffers, box[2] + n
            times -= n

    zero = jnp.zeros((), jnp.int32)
    fixed = (phase, ready.data, key, zero, zero, 1, loop.block_length(phase, box[0]))
    run.compiled = lambda: loop.run_chunk.lower(fixed, box[0], box[1]).compile().compiled
    return run


def bayes_predict(name):
    """``posterior.predict`` with 100 samples on 10,000 inputs, moments computed."""
    model = model_of(name, "gaussian")
    posterior = px.fit(model, problem.data(name, 256), px.BayesByBackprop(), steps=1)
    x = jnp.asarray(problem.data(name, problem.INPUTS)[0])

    def run(times):
        for i in range(times):
            posterior.predict(x, samples=problem.SAMPLES, key=i).mean.sum()

    return run


def deterministic_predict(name):
    """One hundred plain forward passes over the same inputs."""
    module = network(name)
    x = jnp.asarray(problem.data(name, problem.INPUTS)[0])

    @jax.jit
    def passes(x):
        return jax.lax.map(lambda i: jax.nn.softmax(module(x + 0 * i)).sum(), jnp.arange(100.0))

    def run(times):
        for _ in range(times):
            passes(x).block_until_ready()

    return run


def gather(name):
    """The minibatches of a fit alone: shuffled indices, rows gathered."""
    model = model_of(name, "gaussian")
    ready = prepare(
        model, problem.data(name), px.BayesByBackprop(), Asked(None, 1_000_000, problem.BATCH)
    )
    data, plan, key = ready.data, ready.plan, jax.random.key(0)

    def step(carry, t):
        batch = data.batch(data.place(t, problem.BATCH, plan.batches, key))
        return jax.tree.map(lambda a, b: a + b, carry, (batch.x, batch.y, batch.weight)), None

    carry = jax.tree.map(jnp.zeros_like, (data.x[: problem.BATCH], data.y[: problem.BATCH],
                                          data.weight[: problem.BATCH]))  # fmt: skip

    def block(carry, start):
        return jax.lax.scan(step, carry, start + jnp.arange(32, dtype=jnp.int32))[0]

    return _repeat(block, carry)


def memory(make, name):
    """Bytes a step holds at its peak, the data aside: as measured, or by the compiler's account."""
    run = make(name)
    run(64)
    x, y = problem.data(name)
    held = jax.devices()[0].memory_stats()
    if held:
        return lambda _: held["peak_bytes_in_use"] - x.nbytes - 4 * len(y)
    plan = run.compiled().memory_analysis()
    total = plan.argument_size_in_bytes + plan.temp_size_in_bytes
    # the plain step holds the data as constants, which do not count
    own = 0 if make is deterministic_step else x.nbytes + 8 * len(y)
    return lambda _: total - own


TASKS = {
    "deterministic": deterministic_step,
    "deterministic by steps": lambda n: deterministic_step(n, 1),
    "deterministic bf16": lambda n: deterministic_step(n, compute="bfloat16"),
    "bayes gaussian": lambda n: bayes_step(n, "gaussian", estimator="weight"),
    "bayes bf16": lambda n: bayes_step(n, "gaussian", compute="bfloat16", estimator="weight"),
    "bayes mixture": lambda n: bayes_step(n, "mixture", estimator="weight"),
    "bayes local": lambda n: bayes_step(n, "gaussian", estimator="local"),
    "bayes flipout": lambda n: bayes_step(n, "gaussian", estimator="flipout"),
    "ivon": lambda n: bayes_step(n, "gaussian", method=px.IVON, estimator="weight"),
    "bayes last layer": lambda n: bayes_step(n, "gaussian", where="head.*"),
    "map": lambda n: bayes_step(n, "gaussian", method=px.MaximumAPosteriori),
    "maximum likelihood": lambda n: bayes_step(n, "gaussian", method=px.MaximumLikelihood),
    "dropout": lambda n: bayes_step(n, "gaussian", method=px.MCDropout),
    "swag": lambda n: bayes_step(n, "gaussian", method=px.SWAG),
    "minibatch": gather,
    "predict": bayes_predict,
    "deterministic predict": deterministic_predict,
}

TASKS |= {f"memory {task}": (lambda n, t=t: memory(t, n)) for task, t in list(TASKS.items())}

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--versions":
        about = {"posterax": px.__version__, "jax": jax.__version__}
        print(json.dumps(about | {"device": jax.devices()[0].device_kind}))
    else:
        problem.serve(lambda task, name: TASKS[task](name))
