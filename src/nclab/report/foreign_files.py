"""Files that others may have written, held against what the pages expect of them."""

from collections.abc import Mapping
from typing import Any

TEXTS = ("kind", "text", "source", "evidence", "needs", "verdict", "mark", "tone", "size")
HERE = ("verdict", "evidence", "size", "relation", "says")
OURS = "findings/"
"""What ids of our own findings begin with in files that do not say whose a claim is."""
NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(TEXTS, ""),
    "verdict": "open",
    "tone": "open",
    "numbers": {},
    "links": {},
}
"""A claim of which only the id is known."""


def read_claims(content: Any, problems: list[str]) -> list[dict[str, Any]]:
    """The claims that are complete; the others are said.

    >>> problems = []
    >>> [one["id"] for one in read_claims([{"id": "a"}, {"id": "b", "links": "x"}], problems)]
    ['a']
    >>> problems
    ["claims.json: claim 'b' is left out: expected an object as links"]
    """
    if content is not None and not isinstance(content, list):
        problems.append("claims.json: expected a list of claims")
    found = []
    for place, claim in enumerate(content if isinstance(content, list) else []):
        if not isinstance(claim, dict) or not isinstance(claim.get("id"), str):
            problems.append(f"claims.json: claim {place + 1} is left out: it has no id")
        elif wrong := _wrong(claim):
            problems.append(f"claims.json: claim {claim['id']!r} is left out: {wrong}")
        else:
            known = {name: value for name, value in claim.items() if value is not None}
            ours = known.get("ours", claim["id"].startswith(OURS)) is True
            here = _here(known.get("here"), claim["id"], problems)
            found.append({**NOTHING, **known, "ours": ours, "here": here})
    return found


def _here(content: Any, id_: str, problems: list[str]) -> dict[str, Any] | None:
    """What a run of this machine says beside a recorded verdict; None where nothing is known.

    >>> _here({"relation": "agrees", "verdict": "reproduced"}, "a/b", [])["says"]
    'agrees (reproduced)'
    """
    if content is None:
        return None
    texts = content if isinstance(content, dict) else {"says": content}
    wrong = [name for name in HERE if not isinstance(texts.get(name), str | None)]
    if wrong or texts is not content:
        problems.append(f"claims.json: claim {id_!r}: what is said of here is left out")
        return None
    found = {**content, **{name: texts.get(name) or "" for name in HERE}}
    older = f"{found['relation']} ({found['verdict']})"
    return {**found, "says": found["says"] or older}


def read_numbers(content: Any, where: str, problems: list[str]) -> dict[str, Any]:
    """The numbers of an experiment without the parts that pages could not show; those are said."""
    if not isinstance(content, dict):
        problems.append(f"{where}: expected an object")
        return {}
    kept = dict(content)
    seeds = kept.get("seeds")
    if not (seeds is None or (isinstance(seeds, list) and all(type(n) is int for n in seeds))):
        problems.append(f"{where}: expected a list of whole numbers as seeds")
        del kept["seeds"]
    if not isinstance(kept.get("preset"), str | None):
        problems.append(f"{where}: expected a text as preset")
        del kept["preset"]
    return kept


def read_papers(content: Any, wanted: set[str], problems: list[str]) -> dict[str, dict[str, Any]]:
    """Title, authors and year of the wanted papers, by key.

    >>> read_papers({"a": {"title": "A", "authors": "B", "year": 1}, "c": {}}, {"a"}, [])
    {'a': {'title': 'A', 'authors': 'B', 'year': 1}}
    """
    if content is not None and not isinstance(content, dict):
        problems.append("claims.json: expected an object as papers")
        return {}
    found = {}
    for key, paper in (content or {}).items():
        if key in wanted and isinstance(paper, dict):
            found[key] = {name: paper.get(name, "") for name in ("title", "authors", "year")}
    return found


def read_stories(content: Any) -> dict[str, dict[str, str]]:
    """Title, claim and source of experiments; what is not of that form is passed over.

    >>> read_stories({"a": {"title": "A"}, "b": 5})
    {'a': {'title': 'A', 'says': '', 'source': '', 'about': ''}}
    """
    found = content.items() if isinstance(content, dict) else ()
    names = ("title", "says", "source", "about")
    return {
        str(key): {name: str(one.get(name) or "") for name in names}
        for key, one in found
        if isinstance(one, dict)
    }


def read_errata(content: Any) -> list[dict[str, Any]]:
    """Errata with their claims; what is not of that form is passed over.

    >>> read_errata([{"where": "a, Eq. 1", "claims": ["a/eq-1"]}, 5])[0]["claims"]
    ['a/eq-1']
    """
    names = ("where", "printed", "correct", "why", "confidence")
    return [
        {
            **{name: str(one.get(name) or "") for name in names},
            "claims": [str(id_) for id_ in one.get("claims") or []],
        }
        for one in (content if isinstance(content, list) else [])
        if isinstance(one, dict) and isinstance(one.get("claims"), list | None)
    ]


def read_skipped(content: Any, problems: list[str]) -> list[tuple[str, str]]:
    """What was skipped, and why; older folders have a list of objects.

    >>> read_skipped({"tour": "no data"}, []), read_skipped([{"what": "tour", "why": "no"}], [])
    ([('tour', 'no data')], [('tour', 'no')])
    """
    if isinstance(content, dict):
        return [(str(name), str(why)) for name, why in content.items()]
    if content is not None and not isinstance(content, list):
        problems.append("skipped.json: expected a list or an object")
        return []
    found = []
    for one in content or []:
        if isinstance(one, dict):
            what = one.get("what") or one.get("name") or one.get("experiment") or ""
            found.append((str(what), str(one.get("why") or one.get("reason") or "")))
        else:
            found.append((str(one), ""))
    return found


def _wrong(claim: Mapping[str, Any]) -> str:
    """What is wrong with a claim, empty if nothing is."""
    for name in TEXTS:
        if not isinstance(claim.get(name), str | None):
            return f"expected a text as {name}"
    links = claim.get("links") or {}
    if not isinstance(links, dict):
        return "expected an object as links"
    if not all(isinstance(target, str | None) for target in links.values()):
        return "expected texts in links"
    return ""
