"""``fit`` and the loop under it: preparing, running, checkpoints, validation, progress."""
