"""What a measurement means, in plain words."""

import torch

import nclab
from nclab.metrics import simplex_etf
from tests.clouds import cloud


def test_a_collapsed_network_is_called_that() -> None:
    etf = simplex_etf(4, 6)
    labels = torch.arange(80) % 4
    verdict = nclab.measure_features(etf[labels], labels, weight=9 * etf).verdict
    assert verdict.startswith("Collapsed: the spread within classes is 0 times the spread between")
    assert "(0 = collapsed; random labels would give 25.33)." in verdict
    assert "The class means form a simplex ETF: their cosines differ" in verdict
    assert "The classifier is aligned with the class means" in verdict


def test_shuffled_labels_stand_beside_where_they_were_measured() -> None:
    data = cloud(per_class=50)
    assert "shuffled labels give" in nclab.measure_features(*data, shuffled_labels=True).verdict
    assert "random labels would give" in nclab.measure_features(*data).verdict


def test_merged_dead_and_lost_classes_stand_out() -> None:
    etf = simplex_etf(5, 8)
    etf[1] = etf[0] + 0.01
    etf[3] = 0.0
    labels = torch.arange(100) % 5
    weight = 5 * etf
    weight[4] = -weight[4]
    verdict = nclab.measure_features(etf[labels], labels, weight).verdict
    assert "Classes 0 and 1 merge (centred cosine" in verdict
    assert "All features are zero in class 3." in verdict
    assert "The loss is no better than guessing in classes 3, 4." in verdict


def test_classes_with_names_are_called_by_them() -> None:
    etf = simplex_etf(5, 8)
    etf[1] = etf[0] + 0.01
    etf[3] = 0.0
    labels = torch.arange(100) % 5
    kept = labels != 2  # the places of the others move
    found = nclab.measure_features(
        etf[labels][kept], labels[kept], 5 * etf, class_names=list("abcde"), allow_missing=True
    )
    assert "Classes a and b merge (centred cosine" in found.verdict
    assert "All features are zero in class d." in found.verdict
    assert found.summary()[0] == found.verdict


def test_means_that_coincide_have_a_verdict_too() -> None:
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0]] * 4)
    verdict = nclab.measure_features(rows, [0, 0, 1, 1] * 2).verdict
    assert verdict == "All class means coincide: no class structure."


def test_too_many_classes_for_a_simplex() -> None:
    data = cloud(num_classes=9, dim=4, per_class=30, noise=0.1)
    assert (
        "too many class means for a simplex ETF in dimension 4"
        in nclab.measure_features(*data).verdict
    )


def test_every_table_ends_with_it() -> None:
    collapse = nclab.measure_features(*cloud())
    assert collapse.verdict in " ".join(str(collapse).split())
    assert collapse.to_dict()["verdict"] == collapse.verdict
    assert "the spread within classes" in collapse._repr_html_()
