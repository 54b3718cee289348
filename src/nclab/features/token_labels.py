"""Which label belongs to which token: its own or the next one's, and none where it is padding."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from nclab.errors import DataError

LabelChoice = Literal["auto", "given", "next"]
"""How labels of tokens are taken: as the model's own loss tells and else as they are; as they are;
of the next token."""


def check_choice(labels: Any) -> None:
    """Refuse what is none of the ways to take labels."""
    if labels not in get_args(LabelChoice):
        ways = " or ".join(map(repr, get_args(LabelChoice)))
        raise DataError(f"Expected labels={ways}, got {labels!r}.")


def next_labels(labels: Tensor, ignore_index: int) -> Tensor:
    """The label of the next token for every token, and `ignore_index` for the last.

    >>> next_labels(torch.tensor([[3, 5, 7]]), -100).tolist()
    [[5, 7, -100]]
    """
    return pad(labels[..., 1:], (0, 1), value=ignore_index)


def row_labels(
    labels: Tensor,
    mask: Tensor | None,
    *,
    shifted: bool,
    ignore_index: int | None,
    time_first: bool = False,
) -> Tensor:
    """A class number for every token: its label, or if `shifted` that of the next token.

    Without a label are the last token, if shifted, and where there is a (B, T) `mask` of real
    tokens also those that are padding and those whose label is that of padding. With `time_first`
    the labels are (T, B).

    >>> tokens, mask = torch.tensor([[3, 5, 7, 0]]), torch.tensor([[1, 1, 1, 0]])
    >>> row_labels(tokens, mask, shifted=True, ignore_index=-100).tolist()
    [[5, 7, -100, -100]]
    """
    padded = mask is not None and mask.shape == labels.shape and labels.ndim > 1
    if not shifted and not padded:
        return labels
    if ignore_index is None:
        what = "padded tokens have none" if padded else "the last token has none"
        raise DataError(f"Expected an ignore_index for tokens without a label, got None: {what}.")
    if time_first:
        turned = None if mask is None else mask.T
        return row_labels(labels.T, turned, shifted=shifted, ignore_index=ignore_index).T
    own = next_labels(labels, ignore_index) if shifted else labels
    if not padded or mask is None:
        return own
    real = mask.to(own.device).bool()
    real = real & pad(real[..., 1:], (0, 1), value=True) if shifted else real
    return own.masked_fill(~real, ignore_index)


def refuse_shifted(labels: Tensor, tokens: Any, ignore_index: int | None) -> None:
    """Refuse to shift labels that are no labels of tokens, or that are shifted already.

    >>> refuse_shifted(torch.tensor([[5, 7, 9]]), torch.tensor([[3, 5, 7]]), -100)
    Traceback (most recent call last):
    nclab.errors.DataError: Expected for labels='next' the label of each token at that token, got \
labels that are those of the next tokens already. Leave labels= out.
    """
    if labels.ndim < 2:
        raise DataError(
            f"Expected for labels='next' a label for each token, (B, T), got shape "
            f"{tuple(labels.shape)}. Leave labels= out where a whole sequence has one label."
        )
    if not isinstance(tokens, Tensor) or tokens.shape != labels.shape or labels.shape[-1] < 3:
        return
    tokens = tokens.to(labels.device)
    used = labels != ignore_index if ignore_index is not None else torch.ones_like(labels).bool()
    if bool((labels == tokens)[used].all()):
        return
    ways = [(labels, tokens, used)]
    if labels.ndim == 2:  # (T, B)
        ways.append((labels.T, tokens.T, used.T))
    for own, read, kept in ways:
        moved = (own[..., :-1] == read[..., 1:])[kept[..., :-1]]
        if len(moved) and bool(moved.all()):
            raise DataError(
                "Expected for labels='next' the label of each token at that token, got labels that "
                "are those of the next tokens already. Leave labels= out."
            )
