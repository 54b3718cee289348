"""Every lemma, proposition and corollary of the thesis, as functions of data with both sides.

The functions live beside their ideas, in `jensen`, `unit_means`, `unit_mean_shift`, `loss_steps`
and `batch_norm`; this is their index. A statement that is false as printed keeps its printed form
(`..._printed`), a counterexample where one data set shows it, and its repaired form.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from nclab.theory.batch_norm import batch_norm_mean_square, batch_norm_rms_printed
from nclab.theory.both_sides import BothSides
from nclab.theory.jensen import (
    exponential_subset_envelope,
    exponential_subset_mean,
    jensen_subset_mean,
    jensen_variance,
    jensen_weighted,
)
from nclab.theory.loss_steps import (
    argument_range,
    argument_range_printed,
    class_loss_bound,
    log_sum_step,
    log_sum_step_printed,
    minimal_loss,
    tangent_step,
)
from nclab.theory.unit_mean_shift import (
    opposed_cosine,
    opposed_cosine_counterexample,
    opposed_cosine_printed,
    opposed_inner,
    opposed_inner_linear,
    unit_mean_shift,
    unit_mean_shift_linear,
)
from nclab.theory.unit_means import (
    cosine_identity,
    ratio_sum,
    ratio_sum_counterexample,
    ratio_sum_printed,
    unit_mean_norm,
    unit_mean_norm_from_mean,
)

__all__ = ["LEMMAS", "BothSides"]

LEMMAS: Mapping[str, tuple[Callable[..., BothSides], ...]] = MappingProxyType(
    {
        "Prop. 2.2.1": (batch_norm_rms_printed, batch_norm_mean_square),
        "Lemma 2.4.1": (jensen_subset_mean,),
        "Lemma 2.4.2": (jensen_weighted,),
        "Cor. 2.4.1": (jensen_variance,),
        "Lemma 2.4.3": (exponential_subset_mean, exponential_subset_envelope),
        "Lemma 2.4.4": (cosine_identity,),
        "Lemma 2.4.5": (
            unit_mean_norm,
            ratio_sum_printed,
            ratio_sum_counterexample,
            ratio_sum,
        ),
        "Cor. 2.4.2": (unit_mean_norm_from_mean,),
        "Lemma 2.4.6": (
            opposed_cosine_printed,
            opposed_cosine_counterexample,
            opposed_cosine,
            opposed_inner,
            opposed_inner_linear,
            unit_mean_shift,
            unit_mean_shift_linear,
        ),
        "Eq. (2.9)": (class_loss_bound,),
        "Eq. (2.18)": (log_sum_step_printed, log_sum_step),
        "Thm 2.3.1 (proof)": (argument_range_printed, argument_range, tangent_step),
        "Thm 2.3.1 (minimality of m)": (minimal_loss,),
    }
)
"""The number in pan2023 -> the functions that compute its two sides."""
