"""Small helpers that know nothing of models: checks, keys, trees, memory, noise."""
