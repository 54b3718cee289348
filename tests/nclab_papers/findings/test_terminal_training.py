"""Training beyond interpolation: both moments, resuming, and slow formulas."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.stats import norm

from nclab.records import read_run
from nclab.training.models.mlp import MLP
from nclab_papers.findings import terminal_training
from nclab_papers.findings.terminal_training import (
    QUANTILES,
    Box,
    Config,
    attacked_accuracy,
    interpolates,
    logit_gaps,
    measure_moment,
    noisy_accuracy,
    prepare_mlp,
    prepare_vgg,
    read_rows,
    train,
)
from tests.nclab_papers.ji2022.test_vgg_training import TINY as VGG
from tests.nclab_papers.pan2023.tiny import TINY as NETWORKS

TINY = Config(
    replace(VGG, images=20, epochs=12, rate=0.05),
    replace(NETWORKS, samples=60, width=48, epochs=40),
    weight_decay=0.0,
    layers=3,
    tested=40,
    perturbed=20,
)


def nothing(*_: object) -> None:
    """A training that nobody watches."""


def test_the_first_moment_is_that_of_interpolation(tmp_path: Path) -> None:
    train(nothing, tmp_path / "run", TINY, "mlp", 0)
    rows = read_rows(tmp_path / "run", "mlp")
    assert [row["moment"] for row in rows] == ["before", "after"]
    first, last = rows
    assert first["accuracy"] == 1
    assert first["margin"] > 0
    assert 1 < first["epoch"] < last["epoch"] == 40
    course, data = prepare_mlp(TINY, 0)
    for _ in range(first["epoch"] - 1):
        course.train_epoch()
    assert not interpolates(course.model, data.train)
    course.train_epoch()
    again = measure_moment(course.model, data, TINY, 0)
    assert {name: first[name] for name in again} == again
    train(nothing, tmp_path / "run", TINY, "mlp", 0)  # finished: left as it is
    assert read_rows(tmp_path / "run", "mlp") == rows


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("network", ["vgg", "mlp"])
def test_a_stopped_run_resumes_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: terminal_training.Network
) -> None:
    monkeypatch.setattr(terminal_training, "CHECKPOINT_EVERY", 4)
    train(nothing, tmp_path / "whole", TINY, network, 1)

    def stop(epoch: int, epochs: int) -> None:
        if epoch == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(stop, tmp_path / "parts", TINY, network, 1)
    assert read_run(tmp_path / "parts").state == "stopped"
    train(nothing, tmp_path / "parts", TINY, network, 1)
    rows = read_rows(tmp_path / "whole", network)
    assert rows[-1]["moment"] == "after"
    assert read_rows(tmp_path / "parts", network) == rows


def test_a_moment_matches_slow_formulas() -> None:
    course, data = prepare_mlp(TINY, 2)
    for _ in range(5):
        course.train_epoch()
    model = course.model
    found = measure_moment(model, data, TINY, 2)
    train_data, test, _ = data
    assert isinstance(model, MLP)
    with torch.no_grad():
        H = model.features(train_data.inputs)[-1].double()
        T = model.features(test.inputs)[-1].double()
        W, b = model.classifier.weight.double(), model.classifier.bias.double()
    means = torch.stack([H[train_data.labels == c].mean(0) for c in range(3)])
    square = torch.stack([H[train_data.labels == c].square().sum(1).mean() for c in range(3)])
    alpha = float(square.mean().sqrt())
    beta = float(W.square().sum(1).mean().sqrt())
    largest = alpha * beta * 3 / 2
    logits = T @ W.T + b
    gaps = []
    for row, label in zip(logits.tolist(), test.labels.tolist(), strict=True):
        gaps.append(row[label] - max(z for c, z in enumerate(row) if c != label))
    right = sum(gap > 0 for gap in gaps) / len(gaps)
    assert found["test_accuracy"] == right
    expected = torch.tensor(gaps).double().quantile(torch.tensor(QUANTILES).double()) / largest
    assert found["test_margins"] == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)
    nearest = torch.cdist(T, means).argmin(1)
    assert found["test_agreement"] == float((nearest == logits.argmax(1)).double().mean())
    assert found["test_centre_accuracy"] == float((nearest == test.labels).double().mean())
    assert found["attacked"][1] <= found["attacked"][0] <= 1


def test_test_data_are_new_samples_of_the_same_teacher() -> None:
    _, (train_data, test, _) = prepare_mlp(TINY, 0)
    assert (len(train_data), len(test)) == (60, 40)
    assert torch.cdist(train_data.inputs, test.inputs).min() > 0
    assert set(test.labels.tolist()) == set(train_data.labels.tolist())


@pytest.mark.usefixtures("small")
def test_test_images_are_different_and_within_the_valid_range() -> None:
    _, (_, test, box) = prepare_vgg(TINY, 0)
    assert test.labels.bincount().tolist() == [4] * 10
    assert test.labels[:20].tolist() != sorted(test.labels[:20].tolist())
    assert torch.equal(box.clamp(test.inputs), test.inputs)
    moved = box.clamp(test.inputs + 100) - test.inputs
    assert moved[:, :, :2].abs().max() == 0  # what is padded
    assert moved[:, :, 2:-2, 2:-2].max() > 0


def test_the_name_of_a_run_contains_its_relevant_settings() -> None:
    name = TINY.run_name("mlp", 0)
    assert replace(TINY, vgg=replace(TINY.vgg, epochs=99)).run_name("mlp", 0) == name
    assert replace(TINY, mlp=replace(TINY.mlp, workers=7)).run_name("mlp", 0) == name
    assert replace(TINY, steps=9).run_name("mlp", 0) != name
    assert replace(TINY, weight_decay=1e-2).run_name("vgg", 0) == TINY.run_name("vgg", 0)


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
