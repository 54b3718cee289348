"""Errata of pan2023."""

from nclab.claims.paper import Erratum

ERRATA = (
    Erratum(
        "pan2023, Def. 1.2.1",
        "α is the scale *vector* of a frame.",
        "α is its scale, a positive number.",
        "Scaling the coordinates differently changes the angles, which are to be those of a "
        "simplex. In our copy the set that α is from is hard to read.",
        confidence="likely",
    ),
    Erratum(
        "pan2023, Sec. 2.2 (batch norm)",
        "γ and β “represent the desired variance and mean after Batch Normalization”.",
        "γ is the standard deviation.",
        "The centred and scaled coordinate has variance 1; it is multiplied by γ.",
        ("pan2023/sec-2.2-batch-norm",),
        "certain",
    ),
    Erratum(
        "pan2023, Sec. 2.2 (cosines)",
        "“The *intra*-class cosine similarity between two classes”, here, in Lemma 2.4.4 and at "
        "the end of the proof.",
        "The inter-class cosine similarity.",
        "A slip of the pen; the formulas are right.",
        confidence="certain",
    ),
    Erratum(
        "pan2023, Lemma 2.4.5 (proof)",
        "Σ a_i/b_i ≥ (A/B)√N for a_i ≥ 0, b_i > 0, Σ a_i = A, Σ b_i² ≤ B².",
        "Σ a_i/b_i ≥ A²/(βB²) for 0 ≤ a_i ≤ βb_i, which is all the lemma needs.",
        "a = (1, 0, 0, 0), b = (1, 0⁺, 0⁺, 0⁺) gives 1, not 2. With r = a/(βb) ≤ 1: r ≥ r², then "
        "Cauchy–Schwarz. The lemma itself is true and tight. In our copy the right side is hard "
        "to read; A/B is the most that is true without an upper bound on a_i/b_i, and no power "
        "of N can be added to it.",
        ("pan2023/lemma-2.4.5-proposition",),
        "likely",
    ),
    Erratum(
        "pan2023, Lemma 2.4.6",
        "w·h̄ ≤ c/α + 4β(ε/(αβ))^(1/3), and since ‖w‖ ≤ β and ‖h̄‖ ≤ 1, cos(w, h̄) ≤ c/(αβ) + "
        "4(ε/(αβ))^(1/3).",
        "The first, where (1/N) Σ ‖h_i‖ ≥ α − ε/β; the second where the mean itself is long, "
        "‖h̃‖ ≥ α − ε/β. With ρ = ‖h̃‖/α ≥ 1/√2 even w·h̄ ≤ c/α + 2β(1 − ρ²).",
        "Dividing by ‖h̄‖ ≤ 1 is right only where the bound is negative: w = (1, 0) and eleven "
        "features (1, 0), ten (−1.1, 0) have c = 0, a mean norm of .9989 α, and cosine 1 where .42 "
        "is claimed. Where the theorem applies the lemma the mean is long. What ε is, our copy of "
        "the lemma does not say; the mean norm is what its proof begins with.",
        ("pan2023/lemma-2.4.6",),
        "likely",
    ),
    Erratum(
        "pan2023, Eq. (2.2), (2.3), (2.10), (2.11)",
        "(1/N) Σ L_{c,i} = (1/N) Σ softmax(W h_{c,i})_c.",
        "(1/N) Σ −log softmax(W h_{c,i})_c.",
        "The −log is back from (2.4) and (2.12) on; (2.9) is right as printed.",
        confidence="likely",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (intra)",
        "intra_c ≥ 1 − 4(…), in the end with √128.",
        "intra_c ≥ 1 − 8(…), with √512.",
        "Lemma 2.4.5 bounds ‖h̄_c‖, and intra_c is its square. The O(·) of the theorem stays.",
        ("pan2023/proof-intra",),
        "certain",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (inter)",
        "“Since ‖h̄_c‖ ≤ 1” h̄_c·h̄_c' is bounded like the cosine; w_c h̃_c ≤ αβ − …, “the reverse "
        "of (2.19)”.",
        "For a negative cosine the norms must be near 1, which Lemma 2.4.5 gives; w_c h̃_c ≥ αβ − …",
        "Mean unit features of norm ½ at cosine −⅓ have the inner product −1/12. The conclusion is "
        "true, with other constants: `nclab certify` proves it by duality.",
        ("pan2023/proof-inter",),
        "likely",
    ),
    Erratum(
        "pan2023, title page",
        "May 2023, © 2023; date approved April 30, 2020.",
        "2023, presumably.",
        "Two of the three dates agree.",
        confidence="likely",
    ),
)
