"""Programs are forgotten before a process has no memory maps left for them."""

import jax
import jax.numpy as jnp
import pytest

from posterax._util import memory_maps
from posterax.program.compiled import compiled


def compile_programs(n: int, start: int) -> list:
    return [
        jax.jit(lambda x, i=i: x * i + jnp.sin(x))(jnp.ones(3)) for i in range(start, start + n)
    ]


@pytest.fixture
def nothing_new(monkeypatch):
    monkeypatch.setattr(memory_maps, "_new", [])


@pytest.mark.parametrize("full", [True, False])
def test_programs_are_forgotten_where_maps_are_few(monkeypatch, nothing_new, full):
    @compiled
    def double(x):
        return 2 * x

    monkeypatch.setattr(memory_maps, "most_maps", lambda: 100 if full else 10**9)
    double(jnp.ones(3)), double(jnp.ones(4))
    assert double.programs() == 2
    compile_programs(memory_maps.EVERY, 100)
    assert double(jnp.ones(3)).tolist() == [2, 2, 2]  # it looks, and computes the same
    assert double.programs() == (1 if full else 2)


def test_it_looks_once_for_several_programs(monkeypatch, nothing_new):
    looks = []
    monkeypatch.setattr(memory_maps, "most_maps", lambda: looks.append(1))
    compile_programs(memory_maps.EVERY, 200)
    assert memory_maps.make_room() is False
    assert memory_maps.make_room() is False
    assert len(looks) == 1


def test_programs_from_the_disk_count(monkeypatch, nothing_new, tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    function = lambda x: jnp.cos(x) * 41  # noqa: E731
    try:
        compilation_cache.reset_cache()
        for name, value in settings.items():
            jax.config.update(name, value)
        jax.jit(function)(jnp.ones(7))
        assert list(tmp_path.iterdir())
        jax.clear_caches()
        memory_maps._new.clear()
        jax.jit(function)(jnp.ones(7))
        assert memory_maps._new
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_systems_that_do_not_say(monkeypatch, nothing_new):
    monkeypatch.setattr(memory_maps, "most_maps", lambda: None)
    compile_programs(memory_maps.EVERY, 300)
    assert memory_maps.make_room() is False
    assert memory_maps.taken_maps() > 0 or memory_maps.most_maps() is None
