"""Settings for all tests, and for doctests, which the fixtures of tests/ do not reach."""

import os

import jax
import pytest

# Tests compile much and compute little, so the compiler may hurry; and without the emitters that
# fuse by MLIR a program takes a sixth less to compile, in one piece a fifth less. The last two need
# the first: with all passes, what those emit of a random generator keeps LLVM busy for hours. Read
# with the first program, and by subprocesses. XLA ends the process at a flag that it does not know.
OLDER = ("xla_cpu_use_fusion_emitters=false", "xla_cpu_parallel_codegen_split_count=1")
FLAGS = [
    "xla_llvm_disable_expensive_passes=true",
    "xla_backend_optimization_level=1",
    *(OLDER if jax.__version_info__ < (0, 11) else ()),
]
for flag in FLAGS:
    if flag.split("=")[0] not in (flags := os.environ.get("XLA_FLAGS", "")):
        os.environ["XLA_FLAGS"] = f"{flags} --{flag}".strip()


@pytest.fixture(autouse=True)
def hasty_examples(request):
    """Examples compile many programs and run each for a few steps only."""
    hasty = isinstance(request.node, pytest.DoctestItem)
    if hasty:
        jax.config.update("jax_disable_most_optimizations", True)
    yield
    if hasty:
        jax.config.update("jax_disable_most_optimizations", False)
