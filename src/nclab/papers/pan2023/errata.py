"""What pan2023 prints and what it should say."""

from nclab.papers.erratum import Erratum

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
        "pan2023, Thm 2.3.1 (minimum)",
        "m “is the minimum achievable loss for any set of weight and feature vectors” with these "
        "norms.",
        "m is a lower bound in any dimension and attained if and only if d ≥ C − 1.",
        "Equality needs a simplex ETF. The theorem, which only needs the bound, does not say d; "
        "Definition 1.2.1 has d ≥ C.",
        ("pan2023/thm-2.3.1-minimum",),
        "likely",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (exponent)",
        "e^O(αβ) is about exp(C/(C−1) αβ), “which is close to” e^(αβ).",
        "The proof gives about exp(½C αβ), which is the same for C = 3 only. The theorem is true "
        "with the exponent that is printed, and with any from about C/(2(C−1)) on.",
        "The proof divides by √λ, and on its range [−Cαβ, Cαβ] λ is as small as about e^(−Cαβ). "
        "The worst case is 1 − intra = cε with c of the order of exp(C/(C−1) αβ)/(αβ); as a "
        "multiple of √ε, up to where nothing is left of it, that is √c.",
        ("pan2023/remark-exponent",),
        "likely",
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
        "cos(w, h̄) ≤ c/(αβ) + 4(ε/(αβ))^(1/3), without a word on ε.",
        "If ‖h̃‖ ≥ (1 − e)α: cos(w, h̄) ≤ c/(αβ) + 4e^(1/3); and with ρ = ‖h̃‖/α ≥ 1/√2 even "
        "w·h̄ ≤ c/α + 2β(1 − ρ²).",
        "Without a hypothesis on the mean norm: h = (−3, .1), (.01, 0), (.01, 0), w = (1, 0). A "
        "line with the hypothesis may be missing in our copy only. Dividing by ‖h̄‖ ≤ 1, as the "
        "proof does, is right only where the bound is negative.",
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
        "pan2023, Thm 2.3.1 (range)",
        "‖h̃_c‖ ≤ α, therefore the arguments lie in [−Cαβ, Cαβ].",
        "Only the mean of ‖h̃_c‖² over the classes is at most α². They lie there all the same, "
        "for C ≥ 3 and the small ε of the theorem.",
        "A simplex with one class a little longer than the others has a mean feature longer than "
        "α, at any excess. To leave the range a class must take so much of the norms that the "
        "loss shows it: at C = 10, αβ = 5 by ε = 1.56 or more. (At a larger ε the range is "
        "C√(C/(C−1)) αβ.)",
        ("pan2023/proof-range",),
        "likely",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (NC3)",
        "cos(ẇ_c, h̃_c) ≥ 1 − 2√(2ε(1−δ)/(λδ)), “the NC3 bound in the theorem”.",
        "cos(ẇ_c, h̃_c) ≥ 1 − (C−1)/(Cαβ) · 2√(2ε(1−δ)/(λδ)); the theorem announces NC3 but has no "
        "line on it.",
        "Without the factor (C−1)/(Cαβ) of (2.21) the bound fails where αβ is small: ε is of the "
        "order of αβ there, whatever the angles. Our copy shows the factor in the lines before and "
        "after, but not here.",
        ("pan2023/proof-nc3",),
        "likely",
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
        "h̄_c·h̄_c' is bounded like the cosine because ‖h̄‖ ≤ 1; cos(a − b) ≤ cos a + "
        "√(1 − 2 cos b); w_c h̃_c ≤ αβ − …, “the reverse of (2.19)”.",
        "For a negative cosine the norms must be near 1, which Lemma 2.4.5 gives; "
        "√(2(1 − cos b)); w_c h̃_c ≥ αβ − …",
        "Mean unit features of norm ½ at cosine −⅓ have the inner product −1/12. A root of "
        "1 − 2 cos b does not exist at small b, but its first digit may be our copy's. The "
        "conclusion is true, with other constants: `nclab certify` proves it by duality.",
        ("pan2023/proof-inter",),
        "likely",
    ),
    Erratum(
        "pan2023, Sec. 3.1.1",
        "The learning rate “decays times during the training process”.",
        "The number is missing; the author's later code has three decays, at 25, 50 and 75 % of "
        "the epochs, which nclab takes.",
        "Whether the largest weight decays converge depends on it.",
        confidence="scan",
    ),
    Erratum(
        "pan2023, title page",
        "May 2023, © 2023; date approved April 30, 2020.",
        "2023, presumably.",
        "Two of the three dates agree.",
        confidence="likely",
    ),
)
