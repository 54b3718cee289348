"""Errors in ji2022 with their corrections."""

from nclab.claims.paper import Erratum

ERRATA = (
    Erratum(
        "ji2022, Sec. 2.1 (NC4)",
        "argmin_k ⟨w_k, h⟩.",
        "argmax_k ⟨w_k, h⟩.",
        "The classifier predicts the class with the largest score.",
        ("ji2022/nc4",),
    ),
    Erratum(
        "ji2022, Sec. 2.2 (sizes)",
        "N and n both count the samples of a class, and in (1) N counts all samples.",
        "n samples in a class, nK samples in total.",
        "In the formulas with √n, n counts the samples of a class.",
        typo=True,
    ),
    Erratum(
        "ji2022, Sec. 2.2 (flow)",
        "dW/dt = ∂L/∂W, dH/dt = ∂L/∂H.",
        "dW/dt = −∂L/∂W, dH/dt = −∂L/∂H.",
        "Along the printed flow the loss grows.",
        ("ji2022/sec-2.2-flow",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 3.1.1",
        "“Collapsed margin minimize the neural collapse margin.”",
        "Collapsed points maximise the margin among all points of their norm.",
        "The sentence refers to Lemma 3.1, which is an upper bound on the margin.",
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
        "β is the cosine of (W, H) and −∇L.",
        "Lemma 3.3 says that β tends to 1; with +∇L it tends to −1. Use −∇L, and replace the "
        "constant C by q_min/‖θ‖², which changes with t. Then ε = √(2(1 − β)/C) is an equality, "
        "and each multiplier times its slack is at most K/(2eC q_min). The lemma has one positive "
        "constant C; its bounds follow if C is at most q_min/‖θ‖² at all t > t₀.",
        ("ji2022/lemma-3.2",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Eq. (9)",
        "(2 + 2e^(−2C²))/(2 + 2e^(−2C²) + 2e^(2C²)).",
        "(2 + 2e^(−2C²))/(2 + e^(−2C²) + e^(2C²)).",
        "The four logits of a sample are 0, 0, 2C² and −2C².",
        ("ji2022/eq-9",),
    ),
    Erratum(
        "ji2022, Eq. (11)",
        "For every ε > 0 the family (10) has a member within ε whose loss is not larger.",
        "For every ε > 16C²e^(−4C²), to leading order: the loss falls if and only if "
        "|β| > e^(−2C²). For each ε > 0 this holds once C is large enough.",
        "The sum of the exponentials of a sample grows by 4C²β²e^(−4C²) for the opposite class and "
        "falls by 4C²|β|³e^(−2C²) for the two others. At a fixed C the growth is larger close to "
        "the point; at C = 0.5 it is larger everywhere. Close to the point the loss falls in "
        "another direction, which has negative curvature.",
        ("ji2022/eq-11",),
    ),
    Erratum(
        "ji2022, Example 3.1 (saddle)",
        "(W′, H′) is a saddle point on the sphere.",
        "(W, H) is a strict saddle point; (W′, H′) is not.",
        "The gradient on the sphere is not zero at (W′, H′).",
        ("ji2022/example-3.1-saddle",),
    ),
    Erratum(
        "ji2022, Example 3.1 (noise)",
        "With noise, e.g. that of stochastic gradient descent, the bad direction is escaped.",
        "Large enough noise in all coordinates leaves the direction, and descent from there "
        "converges to the optimum. Stochastic descent leaves the ray but never the plane of W and "
        "H, which contains no simplex of four classes.",
        "Gradients in W are combinations of features, those in H of classifiers, for any batch.",
        ("ji2022/example-3.1-noise",),
    ),
    Erratum(
        "ji2022, Remark 3.2",
        "(αW, βH) satisfies the criteria for all real α, β.",
        "For αβ > 0.",
        "With factors of opposite sign every sample is misclassified, which contradicts NC4.",
        ("ji2022/remark-3.2",),
        typo=True,
    ),
    Erratum(
        "ji2022, Sec. 4",
        "Gradient descent with learning rate 5 on the objective (4).",
        "On the mean of the losses, (4) divided by nK.",
        "On the sum, rate 5 diverges from starts of size 0.01 and more. From smaller starts it "
        "stays finite, mostly without collapse: after 10⁵ steps the normalised margin is 0.08 to "
        "0.62 from sizes 1e-10 to 1e-4, and about 0.9 from the unusual size 1e-12.",
        ("ji2022/sec-4-setting",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Fig. 2 (wording)",
        "(a): “the logarithm of both terms decrease at rate O(1/(log(t)))”; (b) to (d): “Logarithm "
        "of” the quantity “converge approximately at rate O(1/log(t))”.",
        "All four captions presumably mean the terms themselves, not their logarithms.",
        "Section 4 agrees with the caption on (a), but says of (b) to (d) that “the remaining "
        "quantities decrease approximately at rate O(1/(log(t)))”, not their logarithms. The axes "
        "are logarithmic; a straight line of slope −1 over log log t is 1/log t.",
        tuple(f"ji2022/fig-2{panel}" for panel in "abcd"),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 5.2 (other losses)",
        "The results on global optima rely only on Jensen's inequality on the logits and can be "
        "generalised to other losses that are convex in them.",
        "The results extend to losses that treat classes equally and are strictly convex and "
        "strictly decreasing functions of the margins, which are the differences between the "
        "correct logit and the others. They also hold for the squared hinge while its margin is "
        "not reached.",
        "For the square loss against one-hot labels, without a bias, the optimum is an orthogonal "
        "frame, not a simplex. The square of margins minus 1 is 0 at both, and so is the squared "
        "hinge once its margin is reached: these losses do not decrease strictly. Below its margin "
        "the hinge is linear, and three classes on a line have the same loss as a simplex.",
        ("ji2022/sec-5.2-convex",),
        confidence="likely",
    ),
    Erratum(
        "ji2022, Sec. 5.2 (weight decay)",
        "Weight decay on homogeneous neural networks is equivalent to gradient descent with "
        "rescaled steps on the unregularised objective.",
        "This holds for scale-invariant networks (degree 0), such as networks with normalisation.",
        "In a network of positive degree the loss and its gradient direction depend on the norm; "
        "the layer-peeled model itself is a counterexample.",
        ("ji2022/sec-5.2-decay",),
        confidence="likely",
    ),
)
