"""LeNet-5, the network of docs/results/images.md, small enough for a processor."""

import numpy as np
from sklearn.datasets import load_digits

import posterax as px


def test_learns_digits_from_bytes():
    x, y = load_digits(return_X_y=True)
    pixels = (16 * x).clip(0, 255).astype("uint8").reshape(-1, 8, 8)
    x = np.repeat(np.repeat(pixels, 2, axis=1), 2, axis=2)
    x, x_test, y, y_test = x[:1400], x[1400:], y[:1400], y[1400:]
    model = px.Model(
        px.networks.LeNet5(image_size=16, key=0),
        px.priors.Gaussian(1.0),
        px.likelihoods.Categorical(),
    )
    posterior = px.fit(
        model,
        (x, y),
        px.BayesByBackprop(temperature=0.3, learning_rate=3e-3, rho_rate=3.0),
        epochs=25,
        batch_size=100,
        augment=px.augment.Shift(1),
        key=0,
    )
    predictive = posterior.predict(x_test, samples=16, key=0)
    assert np.mean(predictive.mode == y_test) > 0.9
    assert px.metrics.negative_log_likelihood(predictive, y_test) < 0.3
    assert px.metrics.expected_calibration_error(predictive.mean, y_test) < 0.06
