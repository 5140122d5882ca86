"""Triton's driver and torch.cuda without a GPU."""
