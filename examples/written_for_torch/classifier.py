"""Two spirals told apart: DataLoader, batch norm, a schedule, validation, the best weights kept and loaded again."""

import argparse
import copy

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()

rng = np.random.default_rng(0)
turn = rng.uniform(0.5, 3, 256)[:, None] * np.pi
points = np.concatenate([np.cos(turn), np.sin(turn)], 1) * turn / 6 * np.where(np.arange(256) % 2, 1, -1)[:, None]
points += rng.normal(scale=0.03, size=points.shape)
data = TensorDataset(torch.from_numpy(points).float(), torch.arange(256) % 2)


class Shuffled(Sampler):
    """An order by NumPy, so that every library sees the same batches."""

    def __init__(self, source):
        self.source = source

    def __iter__(self):
        return iter(rng.permutation(len(self.source)).tolist())

    def __len__(self):
        return len(self.source)


train_part, test_part = Subset(data, range(192)), Subset(data, range(192, 256))
train_loader = DataLoader(train_part, batch_size=args.batch_size, sampler=Shuffled(train_part), drop_last=True)
test_loader = DataLoader(test_part, batch_size=64)


def init_weights(layer):
    if isinstance(layer, nn.Linear):
        layer.weight.data = torch.from_numpy(rng.normal(scale=0.5, size=layer.weight.shape)).float()
        nn.init.zeros_(layer.bias)


model = nn.Sequential(
    nn.Linear(2, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.1), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)
)
model.apply(init_weights)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=args.epochs * len(train_loader))


def train_step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


@torch.no_grad()
def evaluate():
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
    model.train()
    return right / len(test_part)


best, best_state = 0.0, None
for epoch in range(args.epochs):
    total = 0.0
    for x, y in train_loader:
        total += train_step(x, y).item() * x.size(0)
        scheduler.step()
    accuracy = evaluate()
    if accuracy >= best:
        best, best_state = accuracy, copy.deepcopy(model.state_dict())
    print(
        f"epoch {epoch} loss {total / len(train_part):.6f} accuracy {accuracy:.3f} lr {scheduler.get_last_lr()[0]:.5f}"
    )
model.load_state_dict(best_state)
assert evaluate() == best
