"""A small GPT as public training scripts are: parameter groups, warm-up, accumulated gradients, torch.compile."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab_size: int = 16
    block_size: int = 12
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.n_head, self.n_embd = config.n_head, config.n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.block_size, config.n_embd),
            "h": nn.ModuleList([Block(config) for _ in range(config.n_layer)]), "ln_f": nn.LayerNorm(config.n_embd),
        })  # fmt: skip
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits[:, [-1], :], None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


rng = np.random.default_rng(2)
model = GPT(Config())
for name, p in model.named_parameters():
    if p.dim() > 1:
        p.data.copy_(torch.from_numpy(rng.normal(scale=0.1, size=p.shape)))
    elif name.endswith("bias"):
        nn.init.zeros_(p)
groups = [
    {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / 5))
compiled = torch.compile(model, backend="eager")
accumulation = 2


def get_batch():
    start = torch.from_numpy(rng.integers(0, 16, (8, 1)))
    x = (start + torch.arange(13) * (1 + start % 3)) % 16
    return x[:, :-1], x[:, 1:].contiguous()


def micro_step(x, y):
    _, loss = compiled(x, y)
    (loss / accumulation).backward()
    return loss


for it in range(15):
    losses = [micro_step(*get_batch()).item() for _ in range(accumulation)]
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {it} loss {sum(losses) / accumulation:.6f} norm {norm.item():.5f}")
logits, _ = model(torch.zeros(1, 4, dtype=torch.long))
assert logits.shape == (1, 1, 16) and math.isfinite(logits.sum().item())
