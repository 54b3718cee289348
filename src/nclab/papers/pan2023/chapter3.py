"""What chapter 3 of pan2023 says of trained networks, as claims; judged in `pan2023_training`."""

from nclab.papers.claim import Claim, Kind
from nclab.papers.pan2023.training_claims import SENTENCES, Sentence


def _claim(sentence: Sentence) -> Claim:
    conjecture = sentence.name.startswith("conjecture")
    return Claim(
        f"pan2023/{sentence.name if conjecture else f'sec-{sentence.name}'}",
        Kind.CONJECTURE if conjecture else Kind.RESULT,
        sentence.text,
        f"pan2023, {sentence.source}",
        sentence.judge,
        needs=sentence.experiment,
        figure=sentence.experiment,
    )


CLAIMS = tuple(_claim(sentence) for sentence in SENTENCES)
