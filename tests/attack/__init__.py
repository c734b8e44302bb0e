"""Attacks on the promises of the documentation: programs with a seed and a budget.

``python -m tests.attack files --seed 7 --seconds 60`` is one of them, ``make attack`` runs all.
Each makes *cases*, small JSON descriptions of one thing done to posterax, and judges what came of
it. What must not be is a *finding*: it is printed with the command that repeats it, and ``--keep``
puts it into ``corpus/``, which every later run tries first.
"""
