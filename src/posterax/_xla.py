"""One compiler setting, made before the compiler reads its flags.

On a CPU a variational update writes six arrays from the same eight. XLA can compute them in one
pass over memory (multi-output fusion) but does not by default; with it a step of Bayes by Backprop
on a large network takes a quarter less time. Flags are read once, when JAX first compiles, so this
runs on import and has no effect where JAX has compiled before. A user's own
``xla_backend_extra_options`` stay as they are, and ``POSTERAX_KEEP_XLA_FLAGS=1`` leaves all alone.
"""

import os

import jax

_FLAG = "--xla_backend_extra_options"


def allow_multi_output_fusion() -> None:
    """Add the option to ``XLA_FLAGS``, for versions of JAX it was tried with."""
    flags = os.environ.get("XLA_FLAGS", "")
    # XLA ends the process at a flag it does not know, so no guess about versions to come
    known = (0, 10) <= jax.__version_info__[:2] <= (0, 11)
    if known and _FLAG not in flags and not os.environ.get("POSTERAX_KEEP_XLA_FLAGS"):
        os.environ["XLA_FLAGS"] = f"{flags} {_FLAG}=xla_cpu_use_multi_output_fusion=true".strip()


allow_multi_output_fusion()
