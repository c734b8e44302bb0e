"""Markov chains and populations of particles that sample the posterior."""
