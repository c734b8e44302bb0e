"""One set of weights: maximum likelihood, maximum a posteriori, annealing."""
