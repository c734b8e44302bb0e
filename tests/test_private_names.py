"""Names of other libraries we lean on beyond their promises: fail early where one moves."""

import inspect

import jax
import quax


def test_jax():
    from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive  # noqa: F401
    from jax.extend.random import define_prng_impl

    assert {"key_shape", "seed", "split", "random_bits", "fold_in"} <= set(
        inspect.signature(define_prng_impl).parameters
    )
    for name in (
        "dot_general_p",
        "conv_general_dilated_p",
        "transpose_p",
        "reshape_p",
        "squeeze_p",
        "convert_element_type_p",
        "rev_p",
        "broadcast_in_dim_p",
    ):
        assert isinstance(getattr(jax.lax, name), Primitive)
    assert jax.core.ShapedArray((2,), jax.numpy.float32).shape == (2,)
    from jax.interpreters.partial_eval import dce_jaxpr

    program = jax.make_jaxpr(lambda a, b: b + 1)(1.0, 2.0)
    assert dce_jaxpr(program.jaxpr, [True])[1] == [False, True]


def test_jaxpr_shape():
    """The reuse pass reads equations, their parameters and inner jaxprs."""
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
