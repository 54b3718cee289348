"""What ji2022 says of VGG-13 on FashionMNIST, as claims; the judges are in `ji2022_training`."""

from nclab.papers.claim import Claim, Kind
from nclab.papers.ji2022.training_claims import CLAIMED

EXPERIMENT = "ji2022_fig3"
IDS = {
    "fig3a": "fig-3a",
    "fig3b": "fig-3b",
    "fig3c": "fig-3c",
    "fig3d": "fig-3d",
    "sec4-realistic": "sec-4-realistic",
}
"""Names of the findings of the experiment -> numbers of the claims."""

CLAIMS = tuple(
    Claim(
        f"ji2022/{IDS[claimed.name]}",
        Kind.RESULT,
        f"VGG-13 on FashionMNIST without weight decay: {claimed.text}",
        f"ji2022, {claimed.source}",
        claimed.judge,
        needs=EXPERIMENT,
        figure=EXPERIMENT,
    )
    for claimed in CLAIMED
)
