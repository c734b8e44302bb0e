"""A Gaussian at the mode, by the curvature there."""
