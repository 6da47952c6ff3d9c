"""A Lightning module with its Trainer: mixed precision, clipping, validation, metrics, checkpoint.

needs: lightning, torchmetrics
"""

from __future__ import annotations

import logging
import tempfile
import warnings

import lightning
import torch
import torch.nn.functional as F
from common import Pictures, options, show, show_weights
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy


class Classifier(lightning.LightningModule):
    """A small convolutional network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1), nn.GroupNorm(4, width), nn.GELU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
        )  # fmt: skip
        self.accuracy = MulticlassAccuracy(10)
        self.losses: list[Tensor] = []

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The loss of a batch."""
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        """Count the right answers of a batch."""
        self.accuracy(self.net(batch[0]), batch[1])
        self.log("accuracy", self.accuracy, on_epoch=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, all tensors at once."""
        return torch.optim.Adam(self.parameters(), lr=1e-3, foreach=True)


def main() -> None:
    """Train a few steps and validate."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    args = options(__doc__)
    width, size, batch = (8, 16, 4) if args.small else (64, 64, 32)
    pinned = args.device == "cuda"
    model = Classifier(width)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="gpu" if args.device == "cuda" else "cpu",
            devices=1,
            precision="bf16-mixed",
            max_steps=args.steps,
            gradient_clip_val=1.0,
            callbacks=[EMAWeightAveraging(decay=0.9), ModelCheckpoint(folder, monitor="loss")],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(
            model,
            DataLoader(Pictures(batch * args.steps, size), batch, pin_memory=pinned),
            DataLoader(Pictures(batch * 2, size), batch, pin_memory=pinned),
        )
    show("loss", torch.stack(model.losses).tolist())
    show("accuracy", [float(trainer.callback_metrics["accuracy"])])
    show_weights(model)


if __name__ == "__main__":
    main()
