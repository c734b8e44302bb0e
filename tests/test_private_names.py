"""Names of other libraries we lean on beyond their promises: fail early where one moves."""

import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import quax

import posterax as px
from posterax._util.jax_names import (
    Primitive,
    ShapedArray,
    Tracer,
    bind,
    define_prng_impl,
    has_started,
    primitive,
    shaped,
    trace_state_clean,
    used_arguments,
)
from posterax.program.compiled import IN_GRAPH, ON_CPU, compiled
from posterax.program.walker import STRUCTURAL

PRIVATE = r"jax\.(core|extend|interpreters|_src)|from jax import core|get_bind_params|lax\.\w+_p\b"


def test_one_file_follows_jax():
    source = Path(px.__file__).parent
    files = {path.relative_to(source).as_posix(): path for path in source.rglob("*.py")}
    assert [name for name, path in files.items() if re.search(PRIVATE, path.read_text())] == [
        "_util/jax_names.py"
    ]


def test_started():
    jnp.ones(1)
    assert has_started() is True
    assert trace_state_clean() is True
    seen = []
    jax.make_jaxpr(lambda: seen.append(trace_state_clean()))()
    assert seen == [False]


def test_random_keys():
    assert {"key_shape", "seed", "split", "random_bits", "fold_in"} <= set(
        inspect.signature(define_prng_impl).parameters
    )


@pytest.mark.parametrize("name", ["dot_general", "conv_general_dilated", *STRUCTURAL])
def test_operations(name):
    assert isinstance(primitive(name), Primitive)
    assert primitive(name).name == name


def test_values_of_a_program():
    assert ShapedArray((2,), jnp.float32).shape == (2,)
    program = jax.make_jaxpr(lambda a, b: b + 1)(1.0, jnp.ones(3))
    assert used_arguments(program) == [False, True]
    (eqn,) = program.jaxpr.eqns
    assert shaped(eqn.outvars[0]).shape == (3,)
    assert shaped(eqn.invars[1]).dtype == jnp.float32
    traced = []
    jax.make_jaxpr(lambda a: traced.append(isinstance(a, Tracer)))(1.0)
    assert traced == [True]


@jax.custom_jvp
def with_slope_5(x):
    return jnp.sin(x)


with_slope_5.defjvp(lambda x, t: (with_slope_5(*x), 5 * t[0]))


@pytest.mark.parametrize(
    "function", [jnp.sin, jax.jit(jnp.sin), jax.checkpoint(jnp.sin), with_slope_5]
)
def test_an_equation_on_other_values(function):
    """With and without functions among its parameters, one result or a list of them."""
    (eqn,) = jax.make_jaxpr(function)(jnp.zeros(3)).jaxpr.eqns
    x = jnp.arange(3.0)
    again, slope = jax.jvp(lambda x: bind(eqn, [x])[0], (x,), (jnp.ones(3),))
    assert jnp.allclose(again, jnp.sin(x))
    assert jnp.allclose(slope, 5 if function is with_slope_5 else jnp.cos(x))


def test_jaxpr_shape():
    """A walk reads equations, their parameters and inner jaxprs."""
    closed = jax.make_jaxpr(jax.jit(lambda x: x * 2))(1.0)
    (equation,) = closed.jaxpr.eqns
    assert "jaxpr" in equation.params
    assert equation.primitive.name in ("jit", "pjit")


def test_quax():
    assert {"aval", "materialise"} <= set(dir(quax.ArrayValue))
    assert callable(quax.register)
    assert callable(quax.quaxify)


def test_blackjax():
    import blackjax
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.staged_adaptation import build_schedule
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    assert len(build_schedule(100)) == 100
    assert len(mass_matrix_adaptation(True)) == 3
    assert len(dual_averaging_adaptation(0.8)) == 3
    parameters = inspect.signature(blackjax.nuts.build_kernel()).parameters
    assert list(parameters) == [
        "rng_key", "state", "logdensity_fn", "step_size", "inverse_mass_matrix",
        "max_num_doublings",
    ]  # fmt: skip


@pytest.mark.parametrize("options", [ON_CPU, IN_GRAPH])
def test_this_xla_knows_our_options(options):
    """Elsewhere a program is compiled without them, and nobody would see why it is slow."""
    jax.jit(lambda x: x + 1, compiler_options=options)(jnp.ones(3))


def test_programs_do_without_options_that_another_xla_lacks(monkeypatch):
    monkeypatch.setitem(ON_CPU, "xla_cpu_of_another_version", True)
    double = compiled(lambda x: 2 * x)
    assert double(jnp.ones(())) == 2
    assert double(jnp.zeros(())) == 0
    assert double.programs() == 1


def test_errors_of_programs_are_not_taken_for_missing_options():
    def fail(x):
        raise jax.errors.JaxRuntimeError("of its own")

    program = compiled(fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="of its own"):
        program(jnp.ones(()))
    assert program._options["cpu"] == ON_CPU
