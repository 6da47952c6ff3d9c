"""A Gaussian process of gpytorch: marginal likelihood, Adam, predictions with conjugate gradients.

needs: gpytorch
"""

from __future__ import annotations

import gpytorch
import torch
from common import options, show
from torch import Tensor


class Model(gpytorch.models.ExactGP):  # type: ignore[misc]  # the base is untyped
    """A radial kernel with a learnt scale."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at `x`."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main() -> None:
    """Fit the hyperparameters in a few steps, then predict."""
    args = options(__doc__, steps=10)
    points = 40 if args.small else 1000
    x = torch.linspace(0, 1, points).to(args.device)
    y = torch.sin(6 * x) + 0.1 * torch.cos(50 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=True)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    model.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        prediction = likelihood(model(torch.linspace(0, 1, 5).to(args.device)))
        show("mean", prediction.mean.tolist())
        show("variance", prediction.variance.tolist())


if __name__ == "__main__":
    main()
