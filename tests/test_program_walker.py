"""One walker over programs: calls, constants, checkpoints, loops; whatever the rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterax._util.jax_names import bind
from posterax.program.walker import called, equations, plain_call, walk, within

TABLE = np.arange(3.0, dtype=np.float32)


@jax.custom_jvp
def clipped(x):
    return jnp.maximum(x, 0)


clipped.defjvp(lambda x, t: (clipped(*x), 7 * t[0]))

FUNCTIONS = {
    "plain": lambda x: jnp.tanh(x) * 2 + 1,
    "constant": lambda x: x * TABLE,
    "returned argument, literal": lambda x: (x, 3.0, x + 1),
    "nested jit": jax.jit(lambda x: jax.jit(lambda x: x * TABLE)(jnp.sin(x))),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)) * TABLE),
    "checkpoint in jit": jax.jit(jax.checkpoint(lambda x: jnp.sin(x) * 2)),
    "custom derivative": lambda x: clipped(x - 1) * 2,
    "scan": lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), jnp.ones(()), x),
    "while": lambda x: jax.lax.while_loop(lambda x: jnp.all(x < 9), lambda x: x + 1, x),
    "cond": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "no arguments": lambda x: jnp.arange(3),
    "unused results": lambda x: jax.lax.top_k(x, 2)[0],
}


def names(program, enter, **options):
    """The operations that a rule meets."""
    met = []

    def rule(eqn, inputs):
        met.append(eqn.primitive.name)
        return [None] * len(eqn.outvars)

    arguments = [None] * len(program.in_avals)
    walk(program, arguments, rule, constant=lambda value: None, enter=enter, **options)
    return met


def evaluate(function, x, **options):
    program = jax.make_jaxpr(function)(x)
    return walk(program, [x], bind, constant=lambda value: value, **options)


@pytest.mark.parametrize("enter", [None, plain_call])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_with_the_operations_themselves_it_is_the_function(name, enter):
    x = jnp.asarray([0.5, 2.0, -1.0])
    want = jax.tree.leaves(FUNCTIONS[name](x))
    for got, expected in zip(evaluate(FUNCTIONS[name], x, enter=enter), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_constants_are_what_the_pass_says():
    """Literals, arrays from outside, and those of an inner program; arguments are not."""
    program = jax.make_jaxpr(lambda x: jax.jit(lambda x: x * TABLE)(x) + 2.0)(jnp.ones(3))
    values = []

    def rule(eqn, inputs):
        return [any(inputs)]

    def constant(value):
        values.append(np.asarray(value).tolist())
        return True

    assert walk(program, [False], rule, constant=constant) == [True]
    assert [0.0, 1.0, 2.0] in values
    assert 2.0 in values


def test_which_calls_are_entered():
    program = jax.make_jaxpr(lambda x: clipped(jax.jit(jnp.sin)(x)))(1.0)
    assert names(program, None) == ["sin", "max"]
    assert names(program, plain_call) == ["sin", "custom_jvp_call"]
    assert names(program, lambda eqn, inputs: False) == ["jit", "custom_jvp_call"]


def test_a_custom_derivative_is_left_alone():
    x = jnp.asarray([2.0])
    for enter, slope in ((plain_call, 7.0), (None, 1.0)):
        (tangent,) = jax.jvp(lambda x, e=enter: evaluate(clipped, x, enter=e), (x,), (x / 2,))[1]
        assert tangent == slope


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_checkpoint_saves_again(checkpoint):
    policy = jax.checkpoint_policies.nothing_saveable

    @jax.jit
    def function(x):
        return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=policy, prevent_cse=False)(x)

    def again(x):
        return evaluate(function, x, checkpoint=checkpoint)[0]

    met = [eqn for eqn in equations(jax.make_jaxpr(again)(1.0)) if "policy" in eqn.params]
    assert len(met) == checkpoint
    for eqn in met:
        assert eqn.params["policy"] is policy
        assert not eqn.params["prevent_cse"]
    np.testing.assert_allclose(jax.grad(again)(1.0), jax.grad(function)(1.0), rtol=1e-6)


def test_a_rule_walks_the_bodies_of_loops():
    """Products in a row, times the steps of the loop that they are in."""

    def network(w, x):
        step = jax.jit(lambda h, _: (h @ w @ w, None))
        return jax.lax.scan(step, x @ w, length=5)[0]

    program = jax.make_jaxpr(network)(jnp.ones((2, 2)), jnp.ones((3, 2)))

    def count(program):
        total = 0

        def rule(eqn, inputs):
            nonlocal total
            if eqn.primitive.name == "scan":
                total += eqn.params["length"] * count(eqn.params["jaxpr"])
            total += eqn.primitive.name == "dot_general"
            return [None] * len(eqn.outvars)

        walk(program, [None] * len(program.in_avals), rule, constant=lambda value: None)
        return total

    assert count(program) == 1 + 5 * 2
    (loop,) = [eqn for eqn in equations(program) if eqn.primitive.name == "scan"]
    assert called(loop) is None
    assert sum(eqn.primitive.name == "dot_general" for eqn in within(loop)) == 2


def test_equations_within_come_first():
    program = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, jnp.sin, jax.jit(jnp.cos), x))(1.0)
    order = [eqn.primitive.name for eqn in equations(program)]
    assert order[-1] == "cond"
    assert order.index("cos") < order.index("jit")
    assert {"sin", "cos"} <= set(order)


def test_a_rule_must_say_something_of_every_output():
    program = jax.make_jaxpr(jnp.sin)(1.0)
    with pytest.raises(ValueError, match="zip"):
        walk(program, [None], lambda eqn, inputs: [], constant=lambda value: None)
