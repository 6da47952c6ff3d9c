"""Bayesian optimisation with botorch: fit a model, maximise expected improvement, observe.

needs: botorch, gpytorch
"""

from __future__ import annotations

import warnings

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from common import options, show
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor


def objective(x: Tensor) -> Tensor:
    """A function of the unit square with its maximum at (0.3, 0.7): (n, 2) to (n, 1)."""
    return -((x - torch.tensor([0.3, 0.7]).to(x)) ** 2).sum(-1, keepdim=True)


def main() -> None:
    """Choose a few points."""
    warnings.filterwarnings("ignore")
    args = options(__doc__, steps=2)
    samples, restarts = (16, 2) if args.small else (256, 8)
    grid = torch.linspace(0.1, 0.9, 3, dtype=torch.float64)
    x = torch.cartesian_prod(grid, grid).to(args.device)
    y = objective(x)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64, device=args.device)
    for _ in range(args.steps):
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        sampler = SobolQMCNormalSampler(torch.Size([samples]), seed=0)
        acquisition = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler)
        chosen, value = optimize_acqf(
            acquisition, bounds, q=2, num_restarts=restarts, raw_samples=16, options={"seed": 0}
        )
        x, y = torch.cat([x, chosen]), torch.cat([y, objective(chosen)])
        show("improvement", [value.item()])
        show("point", chosen.flatten().tolist())


if __name__ == "__main__":
    main()
