r"""One way to walk a program: equation by equation, by a rule.

A network of any library is traced to a jaxpr: a list of equations, each of which makes values from
values by one operation. What a pass knows about a value is its own affair (an array, a tag, where
an entry comes from); a rule says what is known after an equation from what is known before it. The
rest is the same for every pass, and is here: arguments, constants, calls, what is returned.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from .._util.jax_names import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, shaped

PRODUCTS = ("dot_general", "conv_general_dilated")
# a weight after one of these is still that weight (see ``structural``)
STRUCTURAL = (
    *("transpose", "reshape", "squeeze", "rev", "broadcast_in_dim"),
    *("convert_element_type", "copy"),
)
LOOPS = ("scan", "while", "cond")
PLAIN_CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint")

Value = TypeVar("Value")
Rule = Callable[[JaxprEqn, list[Value]], Sequence[Value]]
Enter = Callable[[JaxprEqn, list[Value]], bool]


def plain_call(eqn: JaxprEqn, inputs: list[Value]) -> bool:
    """Whether a call has no derivative of its own.

    Such a derivative would be lost inside, and is made for arrays: passes that are differentiated,
    or that have distributions in place of arrays, enter plain calls only.
    """
    return eqn.primitive.name in PLAIN_CALLS


def walk(
    program: ClosedJaxpr,
    arguments: Sequence[Value],
    rule: Rule[Value],
    *,
    constant: Callable[[Any], Value],
    enter: Enter[Value] | None = None,
    checkpoint: bool = False,
) -> list[Value]:
    """What is known about the outputs of a program.

    Args:
        program: the program.
        arguments: what is known about its arguments.
        rule: ``rule(equation, inputs)``, what is known about the outputs of one equation. Loops
            (scan, while, cond) are equations too: a rule that wants their bodies walks them.
        constant: what is known about a constant, from its value.
        enter: ``enter(equation, inputs)``, whether a call is walked or left to the rule; without
            it every one is walked.
        checkpoint: whether to save memory again where the program does. Only for a pass that is
            differentiated, on values that JAX can trace.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.program.walker import walk
        >>> program = jax.make_jaxpr(lambda a, b: jax.jit(jnp.tanh)(a) + 2 * b)(1.0, 1.0)
        >>> def deeper(eqn, inputs):
        ...     return [1 + max(inputs)] * len(eqn.outvars)
        >>> walk(program, [0, 3], deeper, constant=lambda value: 0)  # operations in a row
        [5]
    """
    jaxpr = program.jaxpr
    known = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= {v: constant(value) for v, value in zip(jaxpr.constvars, program.consts, strict=True)}

    def read(atom: object) -> Value:
        return constant(atom.val) if isinstance(atom, Literal) else known[atom]

    def inside(body: ClosedJaxpr, *inputs: Value) -> list[Value]:
        return walk(body, inputs, rule, constant=constant, enter=enter, checkpoint=checkpoint)

    for eqn in jaxpr.eqns:
        inputs, body = [read(atom) for atom in eqn.invars], called(eqn)
        if body is None or (enter is not None and not enter(eqn, inputs)):
            outputs = rule(eqn, inputs)
        elif checkpoint and "policy" in eqn.params:
            options = {name: eqn.params[name] for name in ("policy", "prevent_cse")}
            outputs = jax.checkpoint(partial(inside, body), **options)(*inputs)
        else:
            outputs = inside(body, *inputs)
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def called(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a call (jit, custom_jvp, remat, …), where one body takes the call's inputs."""
    bodies = [v for v in eqn.params.values() if isinstance(v, ClosedJaxpr | Jaxpr)]
    if eqn.primitive.name in LOOPS or len(bodies) != 1:
        return None
    body = bodies[0] if isinstance(bodies[0], ClosedJaxpr) else ClosedJaxpr(bodies[0], ())
    return body if len(body.jaxpr.invars) == len(eqn.invars) else None


def equations(program: ClosedJaxpr | Jaxpr) -> Iterator[JaxprEqn]:
    """All equations of a program; those within another (a call, a loop) come before it.

    Example:
        >>> import jax
        >>> from posterax.program.walker import equations
        >>> program = jax.make_jaxpr(lambda x: jax.lax.map(jax.numpy.tanh, x))(jax.numpy.ones(3))
        >>> [eqn.primitive.name for eqn in equations(program)]
        ['tanh', 'scan']
    """
    for eqn in program.eqns:
        yield from within(eqn)
        yield eqn


def within(eqn: JaxprEqn) -> Iterator[JaxprEqn]:
    """All equations in the bodies of one."""
    for part in jax.tree.leaves(list(eqn.params.values())):
        if isinstance(part, ClosedJaxpr | Jaxpr):
            yield from equations(part)


def structural(eqn: JaxprEqn) -> bool:
    """Whether an operation only rearranges its argument: every entry comes out once.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.program.walker import structural
        >>> def program(w):
        ...     return w[None], jnp.broadcast_to(w, (3, 2)), jax.lax.rev(w, (0,))
        >>> [structural(eqn) for eqn in jax.make_jaxpr(program)(jnp.ones(2)).jaxpr.eqns]
        [True, False, True]
    """
    if eqn.primitive.name not in STRUCTURAL:
        return False
    before, after = shaped(eqn.invars[0]), shaped(eqn.outvars[0])
    # a broadcast that adds axes of length 1 is a reshape; any other repeats entries
    return after.size == before.size and jnp.issubdtype(after.dtype, jnp.floating)
