"""From any nn.Module to rows of features: one forward pass, every layer."""
