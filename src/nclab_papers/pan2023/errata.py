"""Errata of pan2023."""

from nclab.claims.paper import Erratum

ERRATA = (
    Erratum(
        "pan2023, Def. 1.2.1",
        r"$\alpha$ is the scale *vector* of a frame.",
        r"$\alpha$ is its scale, a positive number.",
        "Different scales of the coordinates change the angles, which must be those of a simplex. "
        r"In our copy the set that contains $\alpha$ is hard to read.",
        confidence="likely",
    ),
    Erratum(
        "pan2023, Sec. 2.2 (batch norm)",
        r"$\gamma$ and $\beta$ “represent the desired variance and mean after Batch "
        "Normalization”.",
        r"$\gamma$ is the standard deviation.",
        r"The centred and scaled coordinate has variance 1; it is multiplied by $\gamma$.",
        ("pan2023/sec-2.2-batch-norm",),
        "certain",
        typo=True,
    ),
    Erratum(
        "pan2023, Sec. 2.2 (cosines)",
        "“The *intra*-class cosine similarity between two classes”, here, in Lemma 2.4.4 and at "
        "the end of the proof.",
        "The inter-class cosine similarity.",
        "A slip of the pen; the formulas are right.",
        confidence="certain",
        typo=True,
    ),
    Erratum(
        "pan2023, Lemma 2.4.5 (proof)",
        r"$\sum_i a_i/b_i \ge \frac{A}{B}\sqrt{N}$ for $a_i \ge 0$, $b_i > 0$, $\sum_i a_i = A$, "
        r"$\sum_i b_i^2 \le B^2$.",
        r"$\sum_i a_i/b_i \ge \frac{A^2}{\beta B^2}$ for $0 \le a_i \le \beta b_i$, which is all "
        "the lemma needs.",
        r"$a = (1, 0, 0, 0)$, $b = (1, 0^+, 0^+, 0^+)$ gives 1, not 2. With "
        r"$r = a/(\beta b) \le 1$: $r \ge r^2$, then Cauchy–Schwarz. The lemma itself is true and "
        "tight. In our copy the right side is hard to read; $A/B$ is the most that is true without "
        "an upper bound on $a_i/b_i$, and no power of $N$ can be added to it.",
        ("pan2023/lemma-2.4.5-proposition",),
        "likely",
    ),
    Erratum(
        "pan2023, Lemma 2.4.6",
        r"$w \cdot \bar h \le \frac{c}{\alpha} + 4\beta\left(\frac{\varepsilon}{\alpha\beta}\right)"
        r"^{1/3}$, and since $\|w\| \le \beta$ and $\|\bar h\| \le 1$, $\cos(w, \bar h) \le "
        r"\frac{c}{\alpha\beta} + 4\left(\frac{\varepsilon}{\alpha\beta}\right)^{1/3}$.",
        r"The first inequality holds if $\frac{1}{N} \sum_i \|h_i\| \ge \alpha - "
        r"\varepsilon/\beta$. The second one holds if the mean feature itself is long, "
        r"$\|\tilde h\| \ge \alpha - \varepsilon/\beta$. If "
        r"$\rho = \|\tilde h\|/\alpha \ge 1/\sqrt{2}$, then even "
        r"$w \cdot \bar h \le \frac{c}{\alpha} + 2\beta(1 - \rho^2)$.",
        r"Dividing by $\|\bar h\| \le 1$ is right only where the bound is negative: $w = (1, 0)$ "
        r"and eleven features $(1, 0)$, ten $(-1.1, 0)$ have $c = 0$, a mean norm of "
        r"$0.9989\,\alpha$, and cosine 1, but the printed bound is 0.42. The theorem applies the "
        r"lemma only to features with a long mean. Our copy of the lemma does not define "
        r"$\varepsilon$; the condition on the mean norm is the first line of its proof.",
        ("pan2023/lemma-2.4.6",),
        "likely",
    ),
    Erratum(
        "pan2023, Eq. (2.2), (2.3), (2.10), (2.11)",
        r"$\frac{1}{N} \sum_i L_{c,i} = \frac{1}{N} \sum_i \mathrm{softmax}(W h_{c,i})_c$.",
        r"$\frac{1}{N} \sum_i -\log \mathrm{softmax}(W h_{c,i})_c$.",
        r"From (2.4) and (2.12) on, the $-\log$ is printed again; (2.9) is right as printed.",
        confidence="likely",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (range)",
        r"“Note that $\|\tilde h_c\| \le \alpha$, therefore $(\dot w_{c'} - \dot w_c)\tilde h_c "
        r"\ge -C\alpha\beta$”.",
        r"$\|\tilde h_c\| \le \sqrt{C}\alpha$. Near the minimum the range is nevertheless right, "
        "because a network that leaves it has a larger loss.",
        r"$\alpha$ is the root mean square norm of the features of all classes, and one class may "
        r"have longer features. At $C = 4$, $\alpha\beta = 3$ a simplex ETF in which one class has "
        r"$\|\tilde h_c\| = 1.0075\,\alpha$ has an excess loss of only $9.3 \cdot 10^{-6}$.",
        ("pan2023/proof-range",),
        "certain",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (intra)",
        r"$\mathrm{intra}_c \ge 1 - 4(\ldots)$, in the end with $\sqrt{128}$.",
        r"$\mathrm{intra}_c \ge 1 - 8(\ldots)$, with $\sqrt{512}$.",
        r"Lemma 2.4.5 bounds $\|\bar h_c\|$, and $\mathrm{intra}_c$ is its square. The $O(\cdot)$ "
        "of the theorem does not change.",
        ("pan2023/proof-intra",),
        "certain",
    ),
    Erratum(
        "pan2023, Thm 2.3.1 (inter)",
        r"“Since $\|\bar h_c\| \le 1$” $\bar h_c \cdot \bar h_{c'}$ is bounded like the cosine; "
        r"$w_c \tilde h_c \le \alpha\beta - \ldots$, “the reverse of (2.19)”.",
        "For a negative cosine the norms must be near 1, which Lemma 2.4.5 gives; "
        r"$w_c \tilde h_c \ge \alpha\beta - \ldots$",
        r"Mean unit features of norm $\frac{1}{2}$ at cosine $-\frac{1}{3}$ have the inner product "
        r"$-\frac{1}{12}$. The conclusion is true, with other constants: `nclab certify` proves it "
        "by duality.",
        ("pan2023/proof-inter",),
        "likely",
    ),
    Erratum(
        "pan2023, title page",
        "May 2023, © 2023; date approved April 30, 2020.",
        "2023, presumably.",
        "Two of the three dates agree.",
        confidence="likely",
        typo=True,
    ),
)
