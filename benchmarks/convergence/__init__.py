"""Time to the posterior: which ELBO a library reaches, and after how many seconds.

A variational posterior is the optimum of the evidence lower bound. ``problems`` has twelve, each
with a known prior and likelihood. ``run`` fits them with posterax at given settings, ``search``
with many, ``peers`` with other libraries, each in a fresh process that hands back μ and σ. ``elbo``
judges them all, and ``report`` writes docs/results/convergence.md.
"""
