"""A language model of characters, written by hand where programs often do: truncated backpropagation, plain SGD."""

import math

import numpy as np
import torch
import torch.nn as nn

TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on in the sun of the long afternoon. " * 12
letters = sorted(set(TEXT))
index = {letter: k for k, letter in enumerate(letters)}
batch_size, length, clip, lr = 8, 16, 0.25, 4.0


class Model(nn.Module):
    def __init__(self, count, width, layers):
        super().__init__()
        self.encoder = nn.Embedding(count, width)
        self.rnn = nn.LSTM(width, width, layers)
        self.decoder = nn.Linear(width, count)
        self.decoder.weight = self.encoder.weight  # tied

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.encoder(x), hidden)
        return self.decoder(output).view(-1, self.decoder.out_features), hidden

    def init_hidden(self, count):
        weight = next(self.parameters())
        shape = self.rnn.num_layers, count, self.rnn.hidden_size
        return weight.new_zeros(shape), weight.new_zeros(shape)


def batchify(text):
    ids = torch.tensor([index[letter] for letter in text])
    ids = ids.narrow(0, 0, ids.size(0) // batch_size * batch_size)
    return ids.view(batch_size, -1).t().contiguous()


def get_batch(source, i):
    n = min(length, len(source) - 1 - i)
    return source[i : i + n], source[i + 1 : i + 1 + n].reshape(-1)


def repackage(hidden):
    return hidden.detach() if isinstance(hidden, torch.Tensor) else tuple(repackage(h) for h in hidden)


rng = np.random.default_rng(1)
model = Model(len(letters), 24, 2)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.from_numpy(rng.uniform(-0.2, 0.2, parameter.shape)))
criterion = nn.CrossEntropyLoss()


def train_step(x, y, hidden):
    model.zero_grad()
    output, hidden = model(x, repackage(hidden))
    loss = criterion(output, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)
    return loss, hidden


source = batchify(TEXT)
for epoch in range(3):
    hidden, total = model.init_hidden(batch_size), 0.0
    for i in range(0, source.size(0) - 1, length):
        x, y = get_batch(source, i)
        loss, hidden = train_step(x, y, hidden)
        total += len(x) * loss.item()
    mean = total / (len(source) - 1)
    print(f"epoch {epoch} loss {mean:.6f} perplexity {math.exp(mean):.4f}")
