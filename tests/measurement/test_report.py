"""Report: its table, rows and effective depth."""

import dataclasses
import json

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.metrics.catalogue import METRICS, TARGET_MEANINGS

CLASSES = 3
Y = torch.arange(90) % CLASSES
X = torch.randn(90, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
X[:, :CLASSES] += 1.2 * nn.functional.one_hot(Y)


def trained(depth: int = 5) -> nn.Sequential:
    """Return a chain that has learnt its classes, so that its layers differ."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for index in range(depth):
        layers += [nn.Linear(6 if index == 0 else 9, 9), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(9, CLASSES)).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(X), Y).backward()
        optimiser.step()
    return model


MODEL = trained()
REPORT = nclab.measure(MODEL, [(X[:50], Y[:50]), (X[50:], Y[50:])], layers="all")


def nearest_centre_accuracy(features: Tensor) -> float:
    """Return the accuracy by its definition, sample by sample."""
    centres = [features[Y.eq(c)].mean(0) for c in range(CLASSES)]
    right = 0
    for row, label in zip(features, Y.tolist(), strict=True):
        distances = [float((row - centre).square().sum()) for centre in centres]
        right += distances.index(min(distances)) == label
    return right / len(Y)


def accuracies() -> list[float]:
    """Return the accuracy of every measured layer."""
    measured, hidden = [], X
    for module in list(MODEL)[:-1]:
        hidden = module(hidden).detach()
        if isinstance(module, nn.ReLU):
            measured.append(nearest_centre_accuracy(hidden))
    return measured


def test_effective_depth_by_hand() -> None:
    by_hand = accuracies()
    assert [layer.nc4_ncc_accuracy for layer in REPORT.layers] == pytest.approx(by_hand)
    assert by_hand[0] < by_hand[-1]
    depths = set()
    for epsilon in (0.0, 0.01, 0.03, 0.1, 0.2, 0.5):
        good = [i for i, accuracy in enumerate(by_hand, start=1) if 1 - accuracy <= epsilon]
        depth = REPORT.effective_depth(epsilon)
        assert depth == (good[0] if good else len(by_hand))
        depths.add(depth)
    assert len(depths) > 1, "the layers must differ for this to test anything"
    assert REPORT.effective_depth() == REPORT.effective_depth(0.01)


def test_effective_depth_needs_a_second_pass() -> None:
    report = nclab.measure(MODEL, [(X, Y)], layers="all", second_pass=False)
    with pytest.raises(nclab.DataError, match="Measure with a second pass") as caught:
        report.effective_depth()
    assert "\n" not in str(caught.value)
    assert "effective depth" not in str(report)


def test_the_table_shows_every_layer_and_remark() -> None:
    text = str(REPORT)
    lines = text.splitlines()
    for layer in REPORT.layers:
        rows = [line for line in lines if line.strip("│ ").startswith(f"{layer.layer} ")]
        assert len(rows) == 1, layer.layer
        assert f" {layer.dim} " in rows[0]
    assert "classifier: 10 · 90 samples" in text
    assert f"effective depth: {REPORT.effective_depth()} of 5 layers" in text
    assert all(len(line) <= 100 for line in lines)


def test_the_table_shows_long_names_completely() -> None:
    name = "a_body_with_a_rather_long_name"
    model = nn.Sequential()
    for part in (f"{name}_1", f"{name}_2", f"{name}_3"):
        model.add_module(part, nn.Linear(6, 6))
    model.add_module("head", nn.Linear(6, CLASSES))
    report = nclab.measure(model.double(), [(X, Y)], layers="all")
    cells = "".join(line.split("│")[1].strip() for line in str(report).splitlines() if "│" in line)
    for layer in report.layers:
        assert str(layer.layer) in cells


def test_the_table_of_one_layer_explains_every_metric() -> None:
    text = str(nclab.measure(MODEL, [(X, Y)]))
    for metric in METRICS:
        assert metric.name in text


def test_rows_for_a_data_frame() -> None:
    rows = REPORT.to_dicts()
    sizes = {"layer", "dim", "samples", "num_classes", "zero_features", "ignored", "bias_norm"}
    assert len(rows) == len(REPORT.layers) == 5
    for row, layer in zip(rows, REPORT.layers, strict=True):
        assert set(row) == sizes | {metric.name for metric in METRICS} | set(TARGET_MEANINGS)
        assert row["layer"] == layer.layer
        assert row["nc1_trace_pinv"] == layer.nc1_trace_pinv
        assert row["samples"] == 90
        assert row["num_classes"] == CLASSES
    assert [row["loss"] is None for row in rows] == [True] * 4 + [False]
    assert [row["target_distance"] is None for row in rows] == [True] * 4 + [False]


def test_layers_by_name_and_by_position() -> None:
    assert [layer.layer for layer in REPORT.layers] == ["1", "3", "5", "7", "9"]
    assert REPORT["3"] is REPORT[1] is REPORT.layers[1]
    assert REPORT.last is REPORT[-1] is REPORT["9"]
    with pytest.raises(nclab.DataError, match="layers 1, 3, 5, 7, 9, got '4'") as caught:
        REPORT["4"]
    assert "\n" not in str(caught.value)


def test_a_report_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        REPORT.classifier = "other"  # type: ignore[misc]


def test_html_escapes_text_from_users() -> None:
    name = "<script>alert('x')</script>"
    model = nn.Sequential()
    model.add_module(name, nn.Linear(6, 6))
    model.add_module("head", nn.Linear(6, CLASSES))
    for layers in ("last", [name, "head"]):
        html = nclab.measure(model.double(), [(X, Y)], layers=layers)._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert html.count("<table>") == html.count("</table>") == 1


def test_a_prompt_shows_tables() -> None:
    assert repr(REPORT) == str(REPORT)
    assert repr(REPORT.last) == str(REPORT.last)
    assert repr(REPORT.certificate()) == str(REPORT.certificate())


def test_the_summary_says_that_no_layer_reaches_the_depth() -> None:
    torch.manual_seed(0)
    untrained = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU())
    untrained.add_module("head", nn.Linear(9, CLASSES))
    report = nclab.measure(untrained.double(), [(X, Y)], layers="all")
    assert all((layer.nc4_ncc_accuracy or 0) < 0.99 for layer in report.layers)
    assert "effective depth: 2 of 2 layers" in str(report)
    assert "which no layer reaches" in str(report)
    values = {**report.last.values, "nc4_ncc_accuracy": 0.99}
    best = dataclasses.replace(report.last, values=values)
    better = dataclasses.replace(report, layers=(report.layers[0], best))
    assert "effective depth: 2 of 2 layers" in str(better)
    assert "which no layer reaches" not in str(better)


def test_a_report_as_plain_values() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=generator), torch.arange(60) % 3
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    report = nclab.measure(net, [(x[:40], y[:40])], test=[(x[40:], y[40:])], layers="all")
    measured = json.loads(json.dumps(report.to_dict()))
    assert measured["layers"] == [json.loads(json.dumps(one.to_dict())) for one in report.layers]
    assert measured["test"]["layers"][-1]["split"] == "test"
    assert (measured["classifier"], measured["samples"], measured["test"]["samples"]) == (
        "2",
        40,
        20,
    )
    assert measured["test"]["test"] is None
