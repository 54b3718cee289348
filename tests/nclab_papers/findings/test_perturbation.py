"""Accuracy on perturbed inputs, compared with closed forms and an exhaustive search."""

import itertools

import pytest
import torch
from scipy.stats import norm

from nclab_papers.findings.perturbation import Box, attacked_accuracy, logit_gaps, noisy_accuracy


def linear(classes: int, dim: int, seed: int = 0) -> torch.nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Linear(dim, classes)


def data(classes: int, dim: int, size: int = 600) -> tuple[torch.nn.Linear, torch.Tensor]:
    return linear(classes, dim), torch.randn(size, dim, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("radius", [0.0, 0.02, 0.1, 0.4])
def test_attacks_on_two_classes_match_the_closed_form(radius: float) -> None:
    model, inputs = data(2, 5)
    labels = torch.arange(len(inputs)) % 2
    gaps = logit_gaps(model(inputs), labels)
    worst = gaps - radius * (model.weight[0] - model.weight[1]).abs().sum()
    found = attacked_accuracy(model, inputs, labels, radius=radius)
    assert found == pytest.approx(float((worst > 0).double().mean()), abs=0.002)


def test_attacks_on_more_classes_are_close_to_an_exhaustive_search() -> None:
    model, inputs = data(4, 6)
    labels = model(inputs).argmax(1)
    corners = torch.tensor(list(itertools.product((-0.3, 0.3), repeat=6)))
    exact = (logit_gaps(model(inputs), labels) > 0).clone()
    for corner in corners:  # the gap is concave: its least is at a corner
        exact &= logit_gaps(model(inputs + corner), labels) > 0
    best = float(exact.double().mean())
    found = attacked_accuracy(model, inputs, labels, radius=0.3)
    assert best <= found <= best + 0.02 < 0.9


def test_large_logits_do_not_prevent_attacks() -> None:
    model, inputs = data(3, 4)
    labels = model(inputs).argmax(1)
    before = attacked_accuracy(model, inputs, labels, radius=0.2)
    with torch.no_grad():
        model.weight.mul_(2**30)  # cross-entropy has no gradient left in float32
        model.bias.mul_(2**30)
    assert torch.nn.functional.cross_entropy(model(inputs), labels) == 0
    assert attacked_accuracy(model, inputs, labels, radius=0.2) == before < 0.95


def test_an_adversary_stays_in_the_ball_and_in_the_box() -> None:
    model, inputs = data(3, 4)
    labels = model(inputs).argmax(1)
    seen = []

    def watched(moved: torch.Tensor) -> torch.Tensor:
        seen.append(moved.detach())
        return model(moved)

    low, high = torch.tensor([-9.0, -9.0, -9.0, 0.0]), torch.tensor([9.0, 0.5, 9.0, 0.0])
    inputs = Box(low, high).clamp(inputs)
    attacked_accuracy(watched, inputs[:9], labels[:9], radius=0.2, steps=7, box=Box(low, high))
    for moved in seen:
        assert ((moved >= low) & (moved <= high)).all()
        distance = (moved[:, None] - inputs[:9]).abs().amax(2).amin(1)
        assert (distance <= 0.2 + 1e-6).all()
    assert torch.cat(seen)[:, 3].abs().max() == 0


def test_accuracy_with_noise_matches_the_normal_distribution() -> None:
    model, _ = data(2, 5)
    inputs = torch.ones(20_000, 5) * 0.2
    labels = model(inputs).argmax(1)
    gap = float(logit_gaps(model(inputs), labels)[0].detach())
    spread = float((model.weight[0] - model.weight[1]).norm().detach())
    expected = float(norm.cdf(gap / (0.7 * spread)))
    found = noisy_accuracy(model, inputs, labels, size=0.7, seed=3)
    assert found == pytest.approx(expected, abs=0.01)
    assert found == noisy_accuracy(model, inputs, labels, size=0.7, seed=3)
    assert noisy_accuracy(model, inputs, labels, size=0.0, seed=3) == 1
    still = Box(inputs[0], inputs[0])
    assert noisy_accuracy(model, inputs, labels, size=9.0, seed=3, box=still) == 1
