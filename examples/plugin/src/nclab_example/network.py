"""A network for `nclab sweep`, trained by autograd."""

from torch import Tensor, nn

WIDTH = 32


class Block(nn.Module):
    """A residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return h + relu(W h + b)."""
        return hidden + self.linear(hidden).relu()


def residual(inputs: int, classes: int) -> nn.Module:
    """Return a residual network that ends in a linear classifier."""
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.ReLU(), Block(), Block(), nn.Linear(WIDTH, classes)
    )
