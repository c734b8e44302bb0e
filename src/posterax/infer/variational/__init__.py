"""Variational inference: q is chosen by gradients of a bound."""
