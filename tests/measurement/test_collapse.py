"""Collapse: its values, the reasons for missing values, and its display."""

import copy
import dataclasses
import json
import pickle

import pytest
import torch

import nclab
from nclab.metrics.catalogue import METRICS
from tests.clouds import cloud


def test_collapse_is_frozen_and_prints_every_metric() -> None:
    data = cloud()
    collapse = nclab.measure_features(data.features, data.labels, data.weight)
    with pytest.raises(AttributeError):
        collapse.loss = 0.0  # type: ignore[attr-defined]
    text = str(collapse)
    for metric in METRICS:
        assert metric.name in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert repr(collapse) == text


def test_scalars_are_attributes() -> None:
    data = cloud()
    collapse = nclab.measure_features(data.features, data.labels, data.weight)
    assert list(collapse.values) == [metric.name for metric in METRICS]
    assert {*collapse.values, "inter_cosine", "to_dict"} <= set(dir(collapse))
    for name, value in collapse.values.items():
        assert getattr(collapse, name) == value
        assert name not in vars(nclab.Collapse), "a field or a method would hide the metric"
    with pytest.raises(
        AttributeError, match=r"no 'nc1_trace_pniv'\. Did you mean nc1_trace_pinv\?"
    ):
        _ = collapse.nc1_trace_pniv
    with pytest.raises(AttributeError, match=r"keys of \.values"):
        _ = collapse.x


def test_copies_have_equal_values() -> None:
    data = cloud()
    collapse = nclab.measure_features(data.features, data.labels, data.weight)
    pickled = pickle.loads(pickle.dumps(collapse))
    for again in (copy.copy(collapse), copy.deepcopy(collapse), pickled):
        assert again.to_dict() == collapse.to_dict()
        assert again.nc1_trace_pinv == collapse.nc1_trace_pinv


def test_json_has_every_metric_and_array() -> None:
    data = cloud()
    collapse = nclab.measure_features(data.features, data.labels, data.weight)
    plain = json.loads(json.dumps(collapse.to_dict(), allow_nan=False))
    for metric in METRICS:
        assert plain[metric.name] == getattr(collapse, metric.name)
    assert plain["intra_cosine"] == collapse.intra_cosine.tolist()
    assert plain["inter_cosine"] == collapse.inter_cosine.tolist()
    assert plain["class_counts"] == [9] * 5
    assert len(plain["class_loss"]) == len(plain["nc3_alignment"]) == 5


def test_to_dict_has_the_certificate_of_the_layer_that_the_classifier_reads() -> None:
    data = cloud()
    read = nclab.measure_features(data.features, data.labels, data.weight)
    plain = json.loads(json.dumps(read.to_dict(), allow_nan=False))
    assert plain["certificate"] == read.certificate(pairs=False).to_record()
    assert "certificate" not in plain["notes"]
    inner = nclab.measure_features(data.features, data.labels)
    assert inner.to_dict()["certificate"] is None


def test_to_dict_notes_why_a_certificate_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cloud()
    collapse = nclab.measure_features(data.features, data.labels, data.weight)
    impossible = dataclasses.replace(
        collapse, values={**collapse.values, "balanced_loss": 1e-12}
    ).to_dict()
    assert impossible["certificate"] is None
    assert "contradicts the norms" in impossible["notes"]["certificate"]
    monkeypatch.setattr("nclab.measurement.collapse.CERTIFIED", 2)
    assert "more than 2 classes" in collapse.to_dict()["notes"]["certificate"]


def test_every_missing_value_has_a_reason() -> None:
    data = cloud()
    bare = nclab.measure_features(data.features, data.labels, second_pass=False, scatter=False)
    for metric in METRICS:
        value = getattr(bare, metric.name)
        assert (value is None) == (metric.name in bare.notes), metric.name
    assert bare.notes["nc1_trace_pinv"] == "scatter=False"
    assert "second_pass=False" in bare.notes["centred_max_inter"]
    assert "nc1_trace_pinv" in str(bare)  # the reason is shown


def test_to_dict_omits_the_cosine_matrix_of_many_classes() -> None:
    num_classes = 300
    etf = torch.randn(num_classes, 8, generator=torch.Generator().manual_seed(0))
    collapse = nclab.measure_features(etf.repeat(2, 1), torch.arange(num_classes).repeat(2))
    plain = collapse.to_dict()
    assert plain["inter_cosine"] is None
    assert "inter_cosine" in plain["notes"]
    assert collapse.inter_cosine.shape == (300, 300)
    assert any("no simplex ETF" in warning for warning in collapse.warnings)


def test_classes_without_samples_are_left_out_with_a_warning() -> None:
    data = cloud()
    keep = data.labels != 2
    with pytest.raises(nclab.NclabError, match="got none of 2"):
        nclab.measure_features(data.features[keep], data.labels[keep], data.weight)
    collapse = nclab.measure_features(
        data.features[keep], data.labels[keep], data.weight, min_count=1
    )
    assert collapse.classes == (0, 1, 3, 4)
    assert collapse.num_classes == 4
    assert "Left out 1 class with" in collapse.warnings[0]
    assert collapse.optimal_loss is None
    assert "every class" in collapse.notes["optimal_loss"]
    smaller = torch.tensor([0, 1, -1, 2, 3])[data.labels[keep]]
    same = nclab.measure_features(data.features[keep], smaller)
    assert collapse.nc1_trace_pinv == pytest.approx(same.nc1_trace_pinv, rel=1e-12)
    assert collapse.centred_max_inter == pytest.approx(same.centred_max_inter, rel=1e-12)
    assert collapse.nc4_ncc_accuracy == same.nc4_ncc_accuracy


def test_html_is_a_table() -> None:
    data = cloud()
    html = nclab.measure_features(data.features, data.labels)._repr_html_()
    assert html.startswith("<table>")
    assert '<td style="text-align:left">nc1_trace_pinv</td>' in html


def test_missing_classes_do_not_change_the_definitions_of_nc3() -> None:
    """Rows are centred by all of the classifier; papyan2020 does not centre them at all."""
    etf = nclab.metrics.simplex_etf(4, 6)
    weight = etf + 3.0
    labels = torch.arange(4).repeat(5)
    keep = labels < 3
    full = nclab.measure_features(etf[labels], labels, weight=weight)
    part = nclab.measure_features(etf[labels][keep], labels[keep], weight, min_count=1)
    assert full.nc3_alignment is not None
    assert part.nc3_alignment is not None
    assert part.nc3_alignment.tolist() == pytest.approx(full.nc3_alignment[:3].tolist())
    centred = etf[:3] - etf[:3].mean(0)
    apart = weight[:3] / weight[:3].norm() - centred / centred.norm()
    assert part.nc3_frobenius == pytest.approx(float(apart.square().sum()))
