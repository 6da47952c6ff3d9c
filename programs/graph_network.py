"""A graph attention network of torch-geometric, fed by its prefetching loader (a side stream).

needs: torch_geometric
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import options, show, show_weights
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, PrefetchLoader
from torch_geometric.nn import GATv2Conv, SAGEConv, global_mean_pool


class Network(nn.Module):
    """Attention, then neighbourhood averages, then a pooled classifier."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = GATv2Conv(8, width, heads=2)
        self.average = SAGEConv(2 * width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, data: Data) -> Tensor:
        """Logits (graphs, 3) of a batch of graphs."""
        x = F.elu(self.attend(data.x, data.edge_index))
        x = F.relu(self.average(x, data.edge_index))
        logits: Tensor = self.head(global_mean_pool(x, data.batch))
        return logits


def ring(index: int, nodes: int) -> Data:
    """A ring with chords whose length is the label."""
    generator = torch.Generator().manual_seed(index)
    label = index % 3
    here = torch.arange(nodes)
    there = (here + 2 + label) % nodes
    edges = torch.stack([torch.cat([here, here]), torch.cat([(here + 1) % nodes, there])])
    x = torch.randn(nodes, 8, generator=generator) + label
    return Data(x=x, edge_index=edges, y=torch.tensor([label]))


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    device = torch.device(args.device)
    width, nodes, batch = (8, 12, 4) if args.small else (128, 200, 64)
    model = Network(width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, foreach=True)
    graphs = [ring(index, nodes) for index in range(batch * args.steps)]
    loader = PrefetchLoader(
        DataLoader(graphs, batch_size=batch, num_workers=2, pin_memory=args.device == "cuda"),
        device=device,
    )
    losses = []
    for data in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), data.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()
