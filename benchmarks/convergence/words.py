"""The words of docs/results/convergence.md."""

HEAD = """# Time to the posterior

<!-- written by benchmarks/convergence/report.py: edit the words in words.py there -->

A variational posterior is the optimum of the evidence lower bound (ELBO). This page says how close
a fit comes to it, and after how many seconds. `make bench-convergence` measures it again.
"""
HOW = """## How it was measured

- There are twelve posteriors with known prior and noise; data and networks are in
  `benchmarks/convergence/problems.py`. The prior is N(0, 1) for every weight; in `mixture` it is a
  scale mixture. A seed decides the first weights and the draws; the data are the same.
- Every fit is one call in a fresh process with one core and without a compilation cache. Seconds
  are those of the processor, from the model to the posterior; compilation counts and imports do
  not. A budget of `px.fit` is a run of its own, since the learning rate falls over the length of a
  fit, and its seconds are those of the whole call, with its looks at the ELBO and its diagnosis.
- Other libraries train with Adam at five constant learning rates, one weight sample a step and the
  same batch size, for twice the seconds that our defaults took; the best of the rates then for ten
  times as long, or until it has arrived, with one seed. The clock stands still while μ and σ are
  written.
- Left out: `cnn` and `mnist`, which take hours on two cores; other libraries where the last table
  says so; the search over settings of our own (`python -m benchmarks.convergence.search`), so that
  the reference may still move up. An earlier version of IVON had a median of −0.721 on `concrete`,
  above the best of this page.
- The rates of the defaults were chosen on these problems and these seeds: about 15 settings of
  Bayes by Backprop and 35 of IVON on the two curves, `boston`, `concrete`, `yacht` and `digits`.
  `linear`, `logistic`, `layer_norm` and `mixture` were not looked at for it.
- The objective of all is the same ELBO. The KL is summed over all weights and divided by the number
  of rows; bayesian-torch's own KL is a mean over each array, so the sum is taken instead.
- Pyro and NumPyro start from a deviation of 0.01 and from random weights scaled by the width of a
  layer; NumPyro's training loop and its initialisation are compiled. The layer libraries start as
  they do by default: torchbnn's deviations start at the prior's.
- One function judges all: `px.selection.elbo` with the same noise for everyone, on μ and σ as read
  out of each library. The error is that of its Monte Carlo estimate, 1,000 draws (20,000 for the
  two curves, 50 for `cnn`, 20 for `mnist`); points before the end of a run have a fifth of them.
- As a check of the reading, every other library also says its own ELBO at the end, from 200 draws
  (10 for `mnist`);
  the last line of this page has how far apart the two are.
- The reference is the highest median over the seeds of any setting of any library. Settings are
  tried with one seed, and the best then run with all; the table has how many.
"""
BOLD = """The median over the seeds, the lowest and the seconds. **Bold**: every seed is within the
tolerance, the smaller of 0.1 nats a row and 2 % of the way from the constant predictor."""
RACE = """The fastest of all budgets, and of all other libraries at all learning rates: a user who
knows which to take. A ratio above 1 is in favour of posterax, below 1 of the other library."""
