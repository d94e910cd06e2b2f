"""torch.fx.experimental: what libraries ask it for."""
