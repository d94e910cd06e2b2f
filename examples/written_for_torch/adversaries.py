"""A generator against a discriminator: two optimisers, transposed convolutions, buffers of batch norm, detach."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

rng = np.random.default_rng(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
batch, latent = 16, 8


def draw(*shape):
    return torch.from_numpy(rng.normal(size=shape)).float().to(device)


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        m.weight.data.copy_(torch.from_numpy(rng.normal(scale=0.1, size=m.weight.shape)))
    elif name.find("BatchNorm") != -1:
        torch.nn.init.ones_(m.weight)
        torch.nn.init.zeros_(m.bias)


netG = nn.Sequential(
    nn.ConvTranspose2d(latent, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
    nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
).to(device)  # fmt: skip
netD = nn.Sequential(
    nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0),
).to(device)  # fmt: skip
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))


def train_step(real, noise):
    label = torch.full((real.size(0),), 1.0, dtype=real.dtype, device=device)
    netD.zero_grad()
    output = netD(real)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean()
    fake = netG(noise)
    label.fill_(0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1)
    errG = criterion(netD(fake), label)
    errG.backward()
    optimizerG.step()
    return errD_real + errD_fake, errG, D_x


for i in range(8):
    bumps = np.sin(np.arange(8) / 7 * np.pi)
    real = torch.from_numpy(np.outer(bumps, bumps)).float().expand(batch, 1, 8, 8) + 0.05 * draw(batch, 1, 8, 8)
    errD, errG, D_x = train_step(real, draw(batch, latent, 1, 1))
    print(f"[{i}] Loss_D {errD.item():.6f} Loss_G {errG.item():.6f} D(x) {D_x.item():.5f}")
print(f"running mean {netG[1].running_mean.abs().sum().item():.6f} of {netG[1].num_batches_tracked.item()} batches")
