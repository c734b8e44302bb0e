"""Which posterior is nearest to the truth, and what the temperature does to it."""
