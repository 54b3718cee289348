"""The page of a run shows the numbers of `nclab certify`, or why there are none."""

import pytest
import torch

from nclab.measurement import measure_features
from nclab.metrics import simplex_etf
from nclab.report.run_data import guarantees


@pytest.mark.parametrize("noise", [0.02, 1.0])
def test_rows_are_those_of_the_certificate(noise: float) -> None:
    generator = torch.Generator().manual_seed(0)
    etf = 2.6 * simplex_etf(3, 6, generator=generator).double()
    labels = torch.arange(3).repeat(25)
    features = etf[labels] + noise * torch.randn(75, 6, generator=generator, dtype=torch.float64)
    collapse = measure_features(features, labels, weight=etf)
    certificate = collapse.certificate(pairs=False)
    found = guarantees({"layers": [collapse.to_dict()]})
    assert found is not None
    alignment, intra, inter = found["rows"]
    for row, bound in (
        (alignment, certificate.alignment_lower),
        (intra, certificate.intra_lower),
        (inter, certificate.inter_upper),
    ):
        expected = bound.value if bound.valid else None
        assert row["guaranteed"] == pytest.approx(expected, abs=1e-9)
    assert inter["otherwise"] == ("not searched" if noise < 1 else "nothing")
    assert intra["measured"] == collapse.min_intra
    assert found["classes"]["guaranteed"] == pytest.approx(certificate.class_intra_lower)


@pytest.mark.parametrize("record", [{}, {"layers": []}, {"layers": [{"alpha": 1.0}]}])
def test_without_a_classifier_there_is_none(record: dict[str, object]) -> None:
    assert guarantees(record) is None


def test_why_there_is_no_certificate_is_said() -> None:
    layer = {"num_classes": 4, "balanced_loss": 0.1}
    found = guarantees({"layers": [layer]})
    assert found is not None
    assert found["rows"] == []
    assert "without certificates" in found["words"]
    notes = {"certificate": "Loss 0.1 contradicts the norms"}
    found = guarantees({"layers": [{**layer, "certificate": None, "notes": notes}]})
    assert found is not None
    assert found["words"] == notes["certificate"]


@pytest.mark.parametrize("damaged", [{"class_intra_lower": 3}, {"reasons": 1}, "text", [0.5]])
def test_a_damaged_certificate_breaks_nothing(damaged: object) -> None:
    layer = {"num_classes": 4, "balanced_loss": 0.1, "certificate": damaged}
    found = guarantees({"layers": [layer]})
    assert found is not None
    assert found["words"]
