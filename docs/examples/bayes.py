"""A Bayesian CNN in PyMC: convref's ops under NUTS, ADVI and NumPyro.

    python docs/examples/bayes.py --sampler nuts

Small images hold a vertical or a horizontal bar in noise. The filters, and the weights and bias of
the classifier, have normal priors; the posterior is sampled, or approximated. PyMC's own sampler
takes PyTensor's gradients; NumPyro differentiates the function that PyTensor compiled for JAX.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from convref.integrations import pytensor as cp

SIZE = 6


def examples(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Return images (N, 1, 6, 6) and whether their bar is horizontal."""
    draws = np.random.default_rng(seed)
    labels, lines = draws.integers(0, 2, count), draws.integers(0, SIZE, count)
    images = draws.normal(0, 0.2, (count, 1, SIZE, SIZE))
    for image, label, line in zip(images, labels, lines):
        image[0].T[:, line] += label  # a row
        image[0][:, line] += 1 - label  # or a column
    return images, labels


def network(images: Any, labels: Any) -> pm.Model:
    """Return the model: convolution, silu, max pool, mean over positions, logistic regression."""
    with pm.Model() as model:
        x, y = pm.Data("images", images), pm.Data("labels", labels)
        filters = pm.Normal("filters", 0, 1, shape=(2, 1, 3, 3))
        weights, bias = pm.Normal("weights", 0, 2, shape=2), pm.Normal("bias", 0, 2)
        pooled = cp.max_pool2d(cp.silu(cp.conv2d(x, filters)), 2)
        logits = pooled.mean((2, 3)) @ weights + bias
        pm.Bernoulli("label", logit_p=logits, observed=y, shape=y.shape)
    return model


def posterior(model: pm.Model, sampler: str, draws: int, seed: int = 0) -> Any:
    """Return samples of the posterior; ADVI takes ten steps for each draw."""
    with model:
        if sampler == "advi":
            steps = {"obj_optimizer": pm.adam(learning_rate=0.05), "progressbar": False}
            fitted = pm.fit(10 * draws, random_seed=seed, **steps)
            return fitted.sample(draws, random_seed=seed)
        given = {"draws": draws, "tune": draws, "chains": 1, "cores": 1, "random_seed": seed}
        name = "pymc" if sampler == "nuts" else sampler
        checks = {"compute_convergence_checks": False, "progressbar": False}
        return pm.sample(nuts_sampler=name, **given, **checks)


def accuracy(model: pm.Model, samples: Any, images: Any, labels: Any) -> float:
    """Return which part of other images, of any number, the mean of the samples classifies."""
    with model:
        pm.set_data({"images": images, "labels": labels})
        found = pm.sample_posterior_predictive(samples, random_seed=0, progressbar=False)
    chance = found.posterior_predictive["label"].mean(("chain", "draw")).values
    return float(((chance > 0.5) == labels).mean())


def main(argv: Sequence[str] | None = None) -> float:
    """Sample and classify; the command line of the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sampler", default="nuts", choices=["nuts", "advi", "numpyro"])
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args(argv)
    model = network(*examples(200))
    samples = posterior(model, given.sampler, given.draws)
    found = accuracy(model, samples, *examples(100, seed=1))
    print(f"{given.sampler}: {found:.0%} of 100 other images")
    return found


if __name__ == "__main__":
    main()
