"""Speech recognition with torchaudio: spectrograms on the device, a Conformer, CTC.

needs: torchaudio
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import options, show, show_weights
from torch import nn
from torchaudio.models import Conformer
from torchaudio.transforms import FrequencyMasking, MelSpectrogram


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    rows, samples, width = (2, 4000, 16) if args.small else (16, 32000, 80)
    spectrogram = nn.Sequential(
        MelSpectrogram(16000, n_fft=400, n_mels=width), FrequencyMasking(4)
    ).to(args.device)
    model = Conformer(width, 4, 2 * width, 2, 15, dropout=0.0).to(args.device)
    head = nn.Linear(width, 12).to(args.device)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    losses = []
    for step in range(args.steps):
        generator = torch.Generator().manual_seed(step)
        waves = torch.randn(rows, samples, generator=generator)
        if args.device == "cuda":
            waves = waves.pin_memory()
        letters = torch.randint(1, 12, (rows, 6), generator=generator)
        features = spectrogram(waves.to(args.device, non_blocking=True)).transpose(1, 2)
        lengths = torch.full((rows,), features.shape[1], device=args.device)
        hidden, lengths = model((features + 1e-6).log(), lengths)
        scores = head(hidden).log_softmax(-1).transpose(0, 1)
        loss = F.ctc_loss(scores, letters.to(args.device), lengths, torch.full((rows,), 6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()
