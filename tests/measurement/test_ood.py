"""Out-of-distribution scores, compared with loops and on unknown data."""

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.measurement.ood import CollapseDetector

CLASSES, DIM = 4, 7


def cloud(rows: int = 60) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(rows) % CLASSES
    means = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    spread = torch.randn(rows, DIM, generator=generator, dtype=torch.float64)
    weight = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    return means[labels] * 3 + 0.4 * spread + 1, labels, weight, spread[:, 0][:CLASSES]


def slow_neco(train: Tensor, features: Tensor, dim: int) -> list[float]:
    mean, deviation = train.mean(0), train.std(0, unbiased=False)
    scaled = (train - mean) / deviation
    _, _, rows = torch.linalg.svd(scaled, full_matrices=False)
    measured = []
    for feature in features:
        z = (feature - mean) / deviation
        inside = sum(float(z @ row) ** 2 for row in rows[:dim])
        measured.append((inside / float(z @ z)) ** 0.5)
    return measured


@pytest.mark.parametrize("dim", [None, 2])
def test_neco_equals_a_loop_over_features(dim: int | None) -> None:
    features, labels, _, _ = cloud()
    other = torch.randn(5, DIM, dtype=torch.float64)
    detector = CollapseDetector(score="neco", dim=dim).fit_features(features, labels)
    expected = slow_neco(features, other, CLASSES - 1 if dim is None else dim)
    assert detector.predict_features(other).tolist() == pytest.approx([-e for e in expected])


def test_nci_equals_a_loop() -> None:
    features, labels, weight, bias = cloud()
    detector = CollapseDetector(score="nci", alpha=0.01)
    detector.fit_features(features, labels, weight, bias)
    centre = features.mean(0)
    for feature, measured in zip(features, detector.predict_features(features), strict=True):
        logits = [float(row @ feature + b) for row, b in zip(weight, bias, strict=True)]
        row = weight[logits.index(max(logits))]
        centred = feature - centre
        expected = float(row @ centred) / float(centred.norm()) + 0.01 * float(feature.abs().sum())
        assert float(measured) == pytest.approx(-expected)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))


def trained() -> tuple[nn.Sequential, Tensor, Tensor]:
    model = network()
    inputs = torch.randn(90, 5)
    labels = torch.arange(90) % 3
    inputs = inputs * 0.2 + 3 * torch.eye(5)[labels]
    optimiser = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model, inputs, labels


@pytest.mark.parametrize("score", ["neco", "nci"])
def test_a_fitted_model_separates_known_and_unknown_data(score: str) -> None:
    model, inputs, labels = trained()
    loader = list(zip(inputs.split(30), labels.split(30), strict=True))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    detector = CollapseDetector(model, score).fit(loader)  # type: ignore[arg-type]
    strange = -3 * torch.eye(5)[torch.arange(60) % 2 + 3] + 0.2 * torch.randn(60, 5)
    known, other = detector(inputs), detector.predict(strange)
    ahead = (other[:, None] > known[None]).double().mean()  # the area under the ROC curve
    assert float(ahead) > 0.8
    assert model.training  # as it was
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        model.eval()
        features, logits = model[:3](inputs), model(inputs)
    by_hand = CollapseDetector(score=score).fit_features(  # type: ignore[arg-type]
        features, labels, model[3].weight, model[3].bias
    )
    assert torch.allclose(by_hand.predict_features(features), known, atol=1e-5)
    predicted, confidence = detector.postprocess(model, inputs)  # as OpenOOD asks
    assert torch.equal(predicted, logits.argmax(1))
    assert torch.equal(confidence, -known)
    assert not any(isinstance(one, list) for one in vars(detector).values())  # nothing is kept


def test_openood_fits_with_its_batches() -> None:
    model, inputs, labels = trained()
    detector = CollapseDetector(score="nci")
    batches = [{"data": inputs, "label": labels}]
    detector.setup(model, {"train": batches}, {})
    direct = CollapseDetector(model, "nci").fit([(inputs, labels)])
    assert torch.allclose(detector(inputs), direct(inputs))


def test_nc5_is_the_angle_of_the_other_mean() -> None:
    model, inputs, labels = trained()
    detector = CollapseDetector(model).fit([(inputs, labels)])
    other = torch.randn(40, 5)
    measured = detector.nc5([other[:10], (other[10:], None)])
    with torch.no_grad():
        features = model.eval()[:3]
        mean = features(other).mean(0)
        means = [features(inputs)[labels == c].mean(0) for c in range(3)]
    cosines = [abs(float(m @ mean / m.norm() / mean.norm())) for m in means]
    assert measured == pytest.approx(sum(cosines) / 3, rel=1e-4)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: CollapseDetector(score="knn"), "Expected score='neco' or 'nci', got 'knn'"),  # type: ignore[arg-type]
        (
            lambda: CollapseDetector().predict_features(torch.ones(1, 2)),
            "Expected a fitted detector",
        ),
        (lambda: CollapseDetector().predict(torch.ones(1, 2)), "got no model. Or pass features"),
        (lambda: CollapseDetector(score="nci").fit_features(torch.eye(2), [0, 1]), "weight"),
        (lambda: CollapseDetector(dim=9).fit_features(torch.eye(2), [0, 1]), "dim from 1 to 2"),
        (lambda: CollapseDetector(nn.Conv2d(1, 1, 1)).nc5([]), "a fitted detector"),
    ],
)
def test_wrong_use_of_the_detector_raises_in_one_line(use: object, words: str) -> None:
    with pytest.raises(nclab.NclabError, match=words):
        use()  # type: ignore[operator]
