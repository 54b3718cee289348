"""What pan2023 prints and what it should say."""

from nclab.papers.erratum import Erratum

ERRATA = (
    Erratum(
        "pan2023, Def. 1.2.1",
        "α is the scale *vector* of a frame in d ≥ C dimensions.",
        "α is a positive number, and d ≥ C − 1 is enough.",
        "Scaling the coordinates differently changes the angles. C vectors that sum to zero span "
        "C − 1 dimensions.",
        ("pan2023/def-1.2.1",),
        "certain",
    ),
    Erratum(
        "pan2023, Sec. 2.1",
        "The tilde, the mean of a set of vectors, is defined without the factor 1/N; so is the "
        "variance in Corollary 2.4.1.",
        "ṽ = (1/N) Σ v_i, and (1/N) Σ (x_i − x̃)² ≤ 2ε/λ.",
        "Everything that follows uses means.",
        confidence="scan",
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
        "pan2023, Prop. 2.2.1",
        "√((1/N) Σ‖h_i‖²) = ‖γ‖.",
        "(1/N) Σ‖h_i‖² = Σ_k γ_k² σ_k²/(σ_k² + eps) + ‖b‖², at most ‖γ‖² + ‖b‖².",
        "Equality with ‖γ‖² needs no eps, no unit that is constant on the batch, bias 0 and the "
        "statistics of the batch. The bound α ≤ ‖γ‖, which the theorem needs, survives for bias 0.",
        ("pan2023/prop-2.2.1",),
        "certain",
    ),
    Erratum(
        "pan2023, Eq. (2.1)",
        "α = (1/CN) ΣΣ‖h‖² and β = ‖W‖_F.",
        "α² = (1/CN) ΣΣ‖h‖² and β = ‖W‖_F/√C.",
        "So they are in Theorem 2.3.1, and so the penalty is (λ/2)(Cβ² + α²), as printed.",
        confidence="scan",
    ),
    Erratum(
        "pan2023, Sec. 2.2 (bias)",
        "Ignoring the bias “is equivalent to appending an extra 1 to each feature vector”.",
        "It is, but then α² grows by 1 and β² by ‖b‖²/C, and m is that of the larger norms.",
        "The theorem is about norms. `nclab certify --bias-norm` bounds networks with a bias.",
        ("pan2023/sec-2.2-bias",),
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
        "Equality needs a simplex ETF.",
        ("pan2023/thm-2.3.1-minimum",),
        "certain",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (exponent)",
        "e^O(αβ) is about exp(C/(C−1) αβ), “which is close to” e^(αβ).",
        "The proof gives about exp(½C√(C/(C−1)) αβ). The theorem is true with the exponent that is "
        "printed, and with any from about C/(2(C−1)) on.",
        "The proof divides by √λ with λ = φ''(B), B = C√(C/(C−1)) αβ: the O hides a factor of "
        "about C/2. The worst case is 1 − intra = cε with c of the order of exp(C/(C−1) αβ)/(αβ); "
        "as a multiple of √ε, up to where nothing is left of it, that is √c.",
        ("pan2023/remark-exponent",),
        "likely",
    ),
    Erratum(
        "pan2023, Lemma 2.4.5 (proof)",
        "Σ a_i/b_i ≥ (A/B)√N for a_i ≥ 0, b_i > 0, Σ a_i = A, Σ b_i² ≤ B².",
        "Σ a_i/b_i ≥ A²/(βB²) for 0 ≤ a_i ≤ βb_i, which is all the lemma needs.",
        "a = (1, 0, 0, 0), b = (1, 0⁺, 0⁺, 0⁺) gives 1, not 2. With r = a/(βb) ≤ 1: r ≥ r², then "
        "Cauchy–Schwarz. The lemma itself is true and tight. In our copy the right side is hard "
        "to read; no form without an upper bound on a_i/b_i is true.",
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
        "The −log is back from (2.4) and (2.12) on.",
        ("pan2023/eq-2.9",),
        "likely",
    ),
    Erratum(
        "pan2023, Eq. (2.18)",
        "log(a + ε) ≥ log a + ε/a.",
        "log(a + ε) ≥ log a + ε/(a + ε), with a + ε the exponential of the class loss.",
        "The logarithm is concave. Likewise the “≈” for ε₃ must be the tangent "
        "φ(x₀ + ε₃) ≥ m + (1 − e^(−m))ε₃. The denominator of (2.18) is hard to read in our copy.",
        ("pan2023/eq-2.18",),
        "likely",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (range)",
        "‖h̃_c‖ ≤ α, so the arguments lie in [−Cαβ, Cαβ].",
        "|x_c| ≤ C√(C/(C−1)) αβ.",
        "α is an average over classes; one class may have all of it.",
        ("pan2023/proof-range",),
        "certain",
    ),
    Erratum(
        "pan2023, Eq. (2.21)",
        "The worst case is ε₂ = ε, as ε ≪ 1 makes ε < √ε.",
        "The maximum over ε₂ + πε₃ ≤ ε, which is another one where δ is small against ε.",
        "ε₃/δ against √(ε₂/(λδ)): δ and λ matter, too.",
        ("pan2023/eq-2.21",),
        "certain",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (NC3)",
        "cos(ẇ_c, h̃_c) ≥ 1 − 2√(2ε(1−δ)/(λδ)), “the NC3 bound in the theorem”.",
        "1 − (C−1)/(Cαβ) times the maximum of (2.21); the theorem announces NC3 but has no line on "
        "it.",
        "Without the factor (C−1)/(Cαβ) of (2.21) the bound fails where αβ is small: ε is of the "
        "order of αβ there, whatever the angles. Our copy shows the factor in the lines before and "
        "after, but not here. The bound is also that of ε₂ = ε, see Eq. (2.21).",
        ("pan2023/proof-nc3",),
        "likely",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (intra)",
        "intra_c ≥ 1 − 4(…), in the end with √128.",
        "intra_c ≥ 1 − 8(…), with √512.",
        "Lemma 2.4.5 bounds ‖h̄_c‖, and intra_c is its square.",
        ("pan2023/proof-intra",),
        "certain",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (inter)",
        "cos(a − b) ≤ cos a + √(1 − 2 cos b); h̄_c·h̄_c' ≤ cos because ‖h̄‖ ≤ 1; ε_{1,c} = ε for "
        "every class; α_cβ_c' bounded like α_cβ_c; w_c h̃_c ≤ αβ − …",
        "√(2(1 − cos b)); for a negative cosine the norms must be near 1, which Lemma 2.4.5 "
        "gives; only the average of ε_{1,c} is bounded; w_c h̃_c ≥ αβ − …",
        "The conclusion is true, with other constants: `nclab certify` proves it by duality.",
        ("pan2023/proof-inter",),
        "certain",
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
        "May 2023; date approved April 30, 2020.",
        "2023, presumably.",
        "The thesis cites work of 2022.",
        confidence="likely",
    ),
)
