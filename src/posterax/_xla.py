"""A compiler setting for those who ask for it: ``POSTERAX_MULTI_OUTPUT_FUSION=1``.

On a CPU a variational update writes six arrays from the same eight. XLA can compute them in one
pass over memory, and a step of Bayes by Backprop on a large network then takes about a tenth less
time. The pass is experimental: it ends the process while compiling some programs (NUTS is one), so
it is off unless asked for. Flags are read once, when JAX first compiles; this runs on import.
"""

import os

import jax

_OPTION = "xla_cpu_use_multi_output_fusion"


def multi_output_fusion() -> bool:
    """Whether the compiler was told to fuse kernels with several results."""
    return _OPTION in os.environ.get("XLA_FLAGS", "")


def _ask() -> None:
    # XLA ends the process at a flag it does not know, so no guess about versions to come
    known = (0, 10) <= jax.__version_info__[:2] <= (0, 11)
    wanted = os.environ.get("POSTERAX_MULTI_OUTPUT_FUSION") == "1"
    if known and wanted and not multi_output_fusion():
        flags = os.environ.get("XLA_FLAGS", "")
        flags = f"{flags} --xla_backend_extra_options={_OPTION}=true"
        os.environ["XLA_FLAGS"] = flags.strip()


_ask()
