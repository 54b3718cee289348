"""Query the claims ledger, and judge numbers of your own."""

from nclab.claims.ledger import find, judge_all

for row in judge_all(ids=["pan2023/lemma-2.4", "ji2022/eq-9"]):
    print(f"{row['id']}: {row['verdict']}")

[lemma] = find(["pan2023/lemma-2.4.6"])
print(lemma.text)
print(lemma.check().evidence)

# The judge decides from numbers: if the corrected form fails, the verdict changes.
assert lemma.gather is not None
numbers = dict(lemma.gather("quick"))
numbers["repaired"] = {**numbers["repaired"], "violated": 1}
print("had the repaired form failed once:", lemma.judge(numbers).verdict.value)
