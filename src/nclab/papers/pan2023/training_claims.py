"""What chapter 3 of the thesis says about trained networks, sentence by sentence, with judges."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nclab.papers.pan2023 import depth_judges as depth
from nclab.papers.pan2023 import weight_decay_judges as decay
from nclab.papers.verdict import Finding


class Sentence(NamedTuple):
    """A claim about training, in our words, and the judge of an experiment's numbers."""

    name: str
    source: str
    text: str
    experiment: str
    """The experiment whose numbers the judge reads."""
    judge: Callable[[Mapping[str, Any]], Finding]


SENTENCES = (
    Sentence(
        "3.1-converges",
        "Sec. 3.1.1",
        "Every network reaches perfect training accuracy (0.99 or more), but for no batch norm "
        "at 7e-3 and 1e-2.",
        "pan2023_fig31",
        decay.converges,
    ),
    Sentence(
        "3.1-fails-without-norm",
        "Sec. 3.1.2",
        "Without batch norm training fails for weight decay above 0.005.",
        "pan2023_fig31",
        decay.fails_without_norm,
    ),
    Sentence(
        "3.1-only-affine",
        "Fig. 3.1",
        "Significant collapse emerges only with affine batch norm and enough weight decay.",
        "pan2023_fig31",
        decay.only_affine,
    ),
    Sentence(
        "3.1-grows",
        "Fig. 3.1",
        "With affine batch norm, collapse grows with weight decay wherever training converges.",
        "pan2023_fig31",
        decay.grows,
    ),
    Sentence(
        "3.1-grows-to-3e-3",
        "Fig. 3.1",
        "With affine batch norm, collapse grows with weight decay up to 3e-3.",
        "pan2023_fig31",
        decay.grows_to_moderate,
    ),
    Sentence(
        "3.1-affine-above-plain",
        "Fig. 3.1",
        "Without the affine transformation there is less collapse at every weight decay.",
        "pan2023_fig31",
        decay.affine_above,
    ),
    Sentence(
        "3.1-affine-above-plain-from-1e-3",
        "Fig. 3.1",
        "From weight decay 1e-3 on there is less collapse without the affine transformation.",
        "pan2023_fig31",
        decay.affine_above_plain_large,
    ),
    Sentence(
        "3.1-affine-above-none",
        "Fig. 3.1",
        "Without batch norm there is less collapse at every weight decay.",
        "pan2023_fig31",
        decay.affine_above_none,
    ),
    Sentence(
        "3.1-falls-without-norm",
        "Fig. 3.1",
        "Without batch norm, weight decay makes collapse weaker.",
        "pan2023_fig31",
        decay.falls_without_norm,
    ),
    Sentence(
        "3.1-norm-helps-decay",
        "Sec. 3.1.2",
        "With batch norm a network gains from larger weight decay.",
        "pan2023_fig31",
        decay.norm_helps_decay,
    ),
    Sentence(
        "3.1-norms-fall",
        "Sec. 3.1.2",
        "Larger weight decay makes feature norm and classifier norm smaller.",
        "pan2023_norms",
        decay.norms_fall,
    ),
    Sentence(
        "3.1-guarantee-grows",
        "Sec. 3.1.2",
        "Larger weight decay gives a stronger guarantee of collapse.",
        "pan2023_norms",
        decay.guarantee_grows,
    ),
    Sentence(
        "3.1-guarantee-kept",
        "Thm 2.3.1",
        "No trained network is below the collapse that its losses and norms guarantee.",
        "pan2023_norms",
        decay.guarantee_kept,
    ),
    Sentence(
        "1.4-simpler-data",
        "Sec. 1.4",
        "Data of lower complexity give stronger collapse.",
        "pan2023_complexity",
        decay.simpler_data,
    ),
    Sentence(
        "3.2-early-layers",
        "Sec. 3.2.2",
        "Early layers already classify near-perfectly by nearest class centres.",
        "pan2023_fig33",
        depth.early_layers_separate,
    ),
    Sentence(
        "3.2-largest-decay-fails",
        "Sec. 3.2.2",
        "At weight decay 0.01 the 15 layers fail to converge.",
        "pan2023_fig33",
        depth.largest_decay_fails,
    ),
    Sentence(
        "3.2-accuracy-rises",
        "Fig. 3.3",
        "Nearest-class-centre accuracy rises from layer to layer, with very few exceptions.",
        "pan2023_fig33",
        depth.accuracy_rises,
    ),
    Sentence(
        "3.2-intra-rises",
        "Fig. 3.3",
        "The smallest intra-class cosine rises from layer to layer, with very few exceptions.",
        "pan2023_fig33",
        depth.intra_rises,
    ),
    Sentence(
        "3.2-gap-rises",
        "Fig. 3.3",
        "Intra minus inter rises from layer to layer, with very few exceptions.",
        "pan2023_fig33",
        depth.gap_rises,
    ),
    Sentence(
        "3.2-depth-falls",
        "Sec. 3.2.2",
        "The number of layers needed for near-perfect accuracy falls with weight decay.",
        "pan2023_fig33",
        depth.depth_falls,
    ),
    Sentence(
        "3.2-inter-positive",
        "Sec. 3.2.2",
        "At 3e-3 and 5e-3 the largest inter-class cosine is above zero in many middle layers.",
        "pan2023_fig33",
        depth.inter_positive,
    ),
    Sentence(
        "3.2-inter-unstable",
        "Sec. 3.2.2",
        "The largest inter-class cosine becomes unstable as weight decay grows.",
        "pan2023_fig33",
        depth.inter_unstable,
    ),
    Sentence(
        "conjecture-3.1.1",
        "Conj. 3.1.1",
        "Collapse improves with weight decay, up to e log(λ₂/λ₁).",
        "pan2023_conjectures",
        depth.conjecture_311,
    ),
    Sentence(
        "conjecture-3.2.1",
        "Conj. 3.2.1",
        "Collapse sharpens from layer to layer, up to e.",
        "pan2023_conjectures",
        depth.conjecture_321,
    ),
    Sentence(
        "conjecture-3.2.2",
        "Conj. 3.2.2",
        "Effective depth at some small error e does not grow with weight decay.",
        "pan2023_conjectures",
        depth.conjecture_322,
    ),
)


def findings(experiment: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """What the judges of an experiment say about its numbers, as plain JSON values.

    >>> row = {"norm": "none", "weight_decay": 0.01, "seed": 0, "converged": False,
    ...        "accuracy": 0.5, "min_intra": 1.0, "max_inter": 1.0}
    >>> found = findings("pan2023_fig31", {"config": {"classes": 4}, "rows": [row]})
    >>> found["3.1-fails-without-norm"]["verdict"], found["3.1-grows"]["verdict"]
    ('reproduced', 'open')
    """
    return {
        sentence.name: {
            "claim": sentence.text,
            "source": sentence.source,
            **sentence.judge(numbers).to_dict(),
        }
        for sentence in SENTENCES
        if sentence.experiment == experiment
    }
