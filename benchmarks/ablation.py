"""``python -m benchmarks.ablation``: where the time of a step goes, and what each trick is worth.

The parts of a Bayes by Backprop step are timed apart, in compiled loops of their own; then the
step is timed again with one trick taken away at a time. Writes ``results/ablation-DEVICE.json``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from posterax._util.writing import write_file

NETWORK = "784-1200-1200-10"
RESULTS = Path(__file__).parent / "results"


def timed(runs, rounds=7, seconds=0.4):
    """Milliseconds of each, interleaved, the median of rounds."""
    counts, found = {}, {name: [] for name in runs}
    for name, run in runs.items():
        run(32)
        began = time.perf_counter()
        run(32)
        counts[name] = 32 * max(1, round(seconds / max(time.perf_counter() - began, 1e-6)))
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run(counts[name])
            found[name].append((time.perf_counter() - began) / counts[name] * 1e3)
    return {name: statistics.median(row) for name, row in found.items()}


def parts():
    """A step's parts alone: each a loop whose carry keeps the work alive."""
    import jax
    import jax.numpy as jnp

    import posterax as px
    from benchmarks import problem, worker_jax
    from posterax.fitting import loop
    from posterax.fitting.prepare import Asked, prepare
    from posterax.fitting.start import make_start
    from posterax.infer.objective import batch_nll

    model = px.Model(
        worker_jax.network(NETWORK), worker_jax.PRIORS["mixture"], px.likelihoods.Categorical()
    )
    method, key = px.BayesByBackprop(), jax.random.key(0)
    ready = prepare(model, problem.data(NETWORK), method, Asked(None, 1_000_000, problem.BATCH))
    (phase,) = method.phases(ready.model, ready.plan)
    state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
    batch = ready.data.batch(ready.data.place(jnp.zeros((), jnp.int32), problem.BATCH, 100, key))
    scales = jnp.float32(1e-2), jnp.float32(1e-4)

    def forward_backward(w, t):
        g = jax.grad(lambda w: batch_nll(phase.model, w, (), batch, key)[0])(w)
        return jax.tree.map(lambda a, b: a - 1e-9 * b, w, g)

    def draw(state, t):
        w = phase._draw_weights(state, jax.random.fold_in(key, t), jnp.ones(()))[0]
        return state._replace(mu=w)

    def update(carry, t):
        state, g = carry
        grads = phase._shift_and_scale(state, g, (g, None), scales[1])
        updates, optimizer = phase._optimizer().update(grads, state.optimizer, None)
        mu, rho = (
            jax.tree.map(jnp.add, getattr(state, name), updates[name]) for name in ("mu", "rho")
        )
        return state._replace(mu=mu, rho=rho, optimizer=optimizer), g

    def loops(body, carry):
        def block(carry, start):
            times = start + jnp.arange(32, dtype=jnp.int32)
            return jax.lax.scan(lambda c, t: (body(c, t), None), carry, times)[0]

        return worker_jax._repeat(block, carry)

    return {
        "minibatch": worker_jax.gather(NETWORK),
        "draw of the weights": loops(draw, state),
        "forward and backward pass": loops(forward_backward, state.mu),
        "gradients and Adam for both parameters": loops(update, (state, state.mu)),
        "the whole step": worker_jax.bayes_step(NETWORK, "mixture", estimator="weight"),
        "a deterministic step": worker_jax.deterministic_step(NETWORK),
    }


def without(trick):
    """The step with one trick taken away."""
    import jax

    import posterax.infer.variational.mean_field as module
    from benchmarks import worker_jax
    from posterax._util import noise

    phase = module.VariationalPhase
    if trick == "counter-hash noise (JAX's threefry instead)":

        def threefry(key, tree):
            leaves, treedef = jax.tree.flatten(tree)
            keys = jax.random.split(key, len(leaves))
            drawn = [jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
            return jax.tree.unflatten(treedef, drawn)

        module.standard_normal_like = threefry
        module.noise_key = lambda key: key
    if trick == "branch-free softplus and quantile":
        module.softplus = jax.nn.softplus
        module.softplus_and_slope = lambda x: (jax.nn.softplus(x), jax.nn.sigmoid(x))
        noise.standard_normal = jax.random.normal
    if trick == "closed-form gradients (automatic instead)":

        def gradient(self, state, batch, key, sign, scales):
            def objective(mu, rho):
                moved = state._replace(mu=mu, rho=rho)
                w, _, network_key = self._draw_weights(moved, key, sign)
                total, aux = module.batch_nll(self.model, w, state.state, batch, network_key)
                return scales[0] * total + scales[1] * self.kl(moved, w), (total, aux)

            (_, (nll, aux)), (mu, rho) = jax.value_and_grad(objective, (0, 1), has_aux=True)(
                state.mu, state.rho
            )
            return {"mu": mu, "rho": rho}, nll, aux

        phase.gradient = gradient
    if trick == "KL value every 16th step (every step instead)":
        report, step = phase.report, phase.step

        def with_kl(self, state, batch, key):
            new, info = step(self, state, batch, key)
            return new, info._replace(terms=info.terms | report(self, state, key))

        phase.step, phase.report = with_kl, lambda self, state, key: {}
    return worker_jax.bayes_step(NETWORK, "mixture", estimator="weight")


TRICKS = (
    "nothing",
    "counter-hash noise (JAX's threefry instead)",
    "branch-free softplus and quantile",
    "closed-form gradients (automatic instead)",
    "KL value every 16th step (every step instead)",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--out", default=str(RESULTS))
    parser.add_argument("--only", help="one trick, in this process")
    options = parser.parse_args()
    os.environ["BENCH_DEVICE"] = options.device
    if options.only is not None:
        from benchmarks import worker_jax

        runs = {"step": without(options.only), "plain": worker_jax.deterministic_step(NETWORK)}
        print(json.dumps(timed(runs)))
        return
    found = {"parts": timed(parts()), "without": {}}
    for name, value in found["parts"].items():
        print(f"{name:42s} {value:9.4f} ms", flush=True)
    for trick in TRICKS:
        said = subprocess.run(
            [sys.executable, "-m", "benchmarks.ablation", "--device", options.device, "--only",
             trick], capture_output=True, text=True, check=True,
        )  # fmt: skip
        both = json.loads(said.stdout.splitlines()[-1])
        found["without"][trick] = both | {"ratio": both["step"] / both["plain"]}
        ratio = both["step"] / both["plain"]
        print(f"without {trick:46s} {both['step']:9.4f} ms  {ratio:.2f} ×", flush=True)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / f"ablation-{options.device}.json", json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
