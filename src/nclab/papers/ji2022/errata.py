"""What ji2022 prints and what it should say."""

from nclab.papers.erratum import Erratum

ERRATA = (
    Erratum(
        "ji2022, Def. 2.1",
        "A *symmetric* matrix √(K/(K−1)) Q (I − 11ᵀ/K) with Q orthogonal.",
        "A matrix of this form.",
        "For most Q the product is not symmetric, and collapse may end at any of them; a "
        "definition of the symmetric ones alone would leave these out.",
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 2.1 (NC2)",
        "cos(h̄_k, h̄_j) = −1/(K−1), ‖h̄_k‖ = ‖h̄_j‖; so again in section 4, aspect (3).",
        "The same for h̄_k − h̄, as the sentence before says.",
        "A simplex that is not centred at the origin has other cosines.",
        ("ji2022/nc2",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 2.1 (NC4)",
        "argmin_k ⟨w_k, h⟩.",
        "argmax_k ⟨w_k, h⟩.",
        "The classifier decides for the largest score.",
        ("ji2022/nc4",),
    ),
    Erratum(
        "ji2022, Sec. 2.2 (sizes)",
        "Both N and n are the number of samples in a class, and in (1) N is that of all samples.",
        "n in a class, nK in all.",
        "The formulas with √n are per class.",
    ),
    Erratum(
        "ji2022, Sec. 2.2 (flow)",
        "dW/dt = ∂L/∂W, dH/dt = ∂L/∂H.",
        "dW/dt = −∂L/∂W, dH/dt = −∂L/∂H.",
        "As printed the loss grows.",
        ("ji2022/sec-2.2-flow",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 3.1.1",
        "“Collapsed margin minimize the neural collapse margin.”",
        "Collapsed points maximise it, among those of their norm.",
        "Lemma 3.1, which the sentence is about, is an upper bound.",
    ),
    Erratum(
        "ji2022, Remark 3.1",
        "The minimum along a direction is (½‖W‖² + ½‖H‖²)/q_min^(1/2).",
        "(½‖W‖² + ½‖H‖²)/q_min.",
        "The factor q_min^(−1/2) on (W, H) enters the objective squared.",
        ("ji2022/remark-3.1",),
    ),
    Erratum(
        "ji2022, Lemma 3.2",
        "β is the cosine of (W, H) and (∇_W L, ∇_H L).",
        "Of (W, H) and −∇L.",
        "Lemma 3.3 says that β tends to 1; with +∇L it tends to −1. With −∇L, ε = √(2(1 − β)/C) is "
        "an equality, and the bound on δ can be divided by e.",
        ("ji2022/lemma-3.2",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Eq. (9)",
        "(2 + 2e^(−2C²))/(2 + 2e^(−2C²) + 2e^(2C²)).",
        "(2 + 2e^(−2C²))/(2 + e^(−2C²) + e^(2C²)).",
        "Of the four logits of a sample two are 0, one is 2C² and one −2C².",
        ("ji2022/eq-9",),
    ),
    Erratum(
        "ji2022, Eq. (11)",
        "For every ε > 0 the family (10) has a member within ε whose loss is not larger.",
        "At a fixed C all members near enough have a larger loss; the way down is another "
        "direction, of negative curvature.",
        "To second order in β the partner class of each sample gains more than the others lose.",
        ("ji2022/eq-11",),
    ),
    Erratum(
        "ji2022, Example 3.1 (saddle)",
        "(W′, H′) is a saddle point on the sphere.",
        "(W, H) is; a strict one.",
        "(W′, H′) is not even critical.",
        ("ji2022/example-3.1-saddle",),
    ),
    Erratum(
        "ji2022, Example 3.1 (noise)",
        "With noise, e.g. that of stochastic gradient descent, the bad direction is escaped.",
        "Noise in all coordinates escapes to the optimum. Stochastic descent leaves the ray but "
        "never the plane of W and H, which holds no simplex of four classes.",
        "Gradients in W are combinations of features, those in H of classifiers, for any batch.",
        ("ji2022/example-3.1-noise",),
    ),
    Erratum(
        "ji2022, Remark 3.2",
        "(αW, βH) satisfies the criteria for all real α, β.",
        "For αβ > 0.",
        "Factors of opposite sign classify everything wrongly, against NC4.",
        ("ji2022/remark-3.2",),
    ),
    Erratum(
        "ji2022, Sec. 4",
        "Gradient descent with learning rate 5 on the objective (4).",
        "On the mean of the losses, (4) divided by nK.",
        "On the sum, rate 5 diverges or, from small starts, goes on without collapse.",
        ("ji2022/sec-4-setting",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Fig. 2 (wording)",
        "(a): “the logarithm of both terms decrease at rate O(1/(log(t)))”; (b) to (d): “Logarithm "
        "of” the quantity “converge approximately at rate O(1/log(t))”.",
        "Presumably the terms are meant, in all four.",
        "Section 4 agrees with the caption on (a), but says of (b) to (d) that “the remaining "
        "quantities decrease approximately at rate O(1/(log(t)))”, not their logarithms. The axes "
        "are logarithmic; a straight line of slope −1 over log log t is 1/log t.",
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 5.2 (other losses)",
        "The results on global optima rely only on Jensen's inequality on the logits and can be "
        "generalised to other losses that are convex in them.",
        "To convex losses that are symmetric and depend on differences of logits.",
        "For the square loss against one-hot labels, without a bias, the optimum is an orthogonal "
        "frame, not a simplex.",
        ("ji2022/sec-5.2-convex",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 5.2 (weight decay)",
        "Weight decay on homogeneous neural networks is equivalent to gradient descent with "
        "rescaled steps on the unregularised objective.",
        "On scale-invariant networks, those of degree 0, such as networks with normalisation.",
        "In a network of positive degree the loss depends on the norm, and so does the direction "
        "in which it falls; the layer-peeled model itself is a counterexample.",
        ("ji2022/sec-5.2-decay",),
        confidence="likely",
    ),
)
