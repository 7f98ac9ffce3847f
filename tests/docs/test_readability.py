"""The words of the documentation and, by its reference, of the command help: short sentences, and none of the old habits.

A sentence ends at a full stop, a question mark or an exclamation mark. Code blocks do not count, inline code is one
word, and each cell of a table is a text of its own.
"""

from __future__ import annotations

import re
from functools import cache
from statistics import mean

import pytest

from tests.docs.test_snippets import ROOT

MAX_SENTENCE_WORDS = 35
MAX_MEAN_WORDS = 18

#: Habits that a reader has to translate, each with its replacement. The patterns ignore case.
HABITS = {
    r"\b(tell|tells|told|telling)\b": "report, show, return or print",
    r"\bso (many|much|long|often)\b(?! that)": "give the quantity and its unit",
    r"\bwho(so|m)?ever\b": "name the person or the process",
    r"\b(nobody|somebody)\b": "name the person or the process, or use the passive voice",
    r"\bof (ours|yours)\b": "our, your",
    r"(?<!there )\b(is|are|was) no (?!longer|more|less)\w+\b(?! [^.]*\bthat\b)": "is not a valid …, unknown …",
    r"\bwants? (a|to) look\b": "needs attention",
    r"\b(lapse|lapses|lapsed|lapsing)\b": "expire",
    r"\b(give|gives|given|gave|giving) (it |them |jobs )?back\b": "release",
    r"\blet(s|ting)? go\b": "release",
    r"\b(is|are|was|were) over\b": "has finished, has passed",
    r"\b(hear|hears|heard|hearing)\b": "receive",
    r"\bverbs?\b": "action",
    r"\brehears\w+": "dry run",
    r"\b(in hand|under way)\b": "in flight",
    r"\bin peace\b|\bbehind the scenes\b|\bin earnest\b|\bwhatever it does\b": "say it without the figure of speech",
    r"\bbecomes? of\b": "what happens to",
    r"\bit looks (every|again|once|after)\b": "polls",
    r"\b(sees?|saw) to it\b": "ensure, enforce",
}
#: A sentence whose subject is a clause ("What runs goes on.") instead of a noun; questions and headings are fine.
CLAUSE_AS_SUBJECT = re.compile(r"(What|Whatever|Who|Whoever) [^?]*[.:]", re.DOTALL)


def paragraphs(markdown: str) -> list[str]:
    """The texts of a page: headings, paragraphs, list items and table cells, with inline code as one word."""
    text = re.sub(r"^(```+)[^\n]*\n.*?^\1$|<!--.*?-->", "\n", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(`+)(?:(?!\n\n)[^`])+\1", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ *\|[-:| ]+\|$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *\|.*\|$", lambda row: re.sub(r"(?<!\\)\|", "\n\n", row[0]), text, flags=re.MULTILINE)
    text = re.sub(r"^ *([-*]|\d+\.|#+) +", "\n\n", text, flags=re.MULTILINE)
    parts = (" ".join(part.replace("*", "").split()) for part in re.split(r"\n\s*\n", text))
    return [part for part in parts if part]


def sentences(texts: list[str]) -> list[str]:
    """Their sentences."""
    return [each for text in texts for each in re.split(r"(?<=[.!?])[\"”)]?\s+(?=[A-Z\d(“\"c])", text) if each]


def length_of(sentence: str) -> int:
    """The number of words."""
    return len(re.findall(r"\w[\w'.,-]*", sentence))


def findings(texts: list[str]) -> list[str]:
    """The long sentences and the habits of some texts, each with its place."""
    problems = []
    for sentence in sentences(texts):
        if (length := length_of(sentence)) > MAX_SENTENCE_WORDS:
            problems.append(f"{length} words: {sentence}")
        if CLAUSE_AS_SUBJECT.match(sentence):
            problems.append(f"a clause as the subject: {sentence}")
        for habit, instead in HABITS.items():
            if match := re.search(habit, sentence, re.IGNORECASE):
                problems.append(f"{match[0]!r} ({instead}): {sentence}")
    return problems


PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(path for folder in ("docs", "examples") for path in sorted((ROOT / folder).rglob("*.md"))),
    )
]


@cache
def texts_of(name: str) -> list[str]:
    return paragraphs((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_short_sentences_and_no_habits(name):
    assert findings(texts_of(name)) == []


@pytest.mark.parametrize("name", PAGES)
def test_the_sentences_of_a_page_are_short_on_average(name):
    """Headings, labels and cells of a few words do not count."""
    lengths = [length for length in map(length_of, sentences(texts_of(name))) if length > 3]
    assert mean(lengths) < MAX_MEAN_WORDS


@pytest.mark.parametrize(
    "sentence",
    [
        "The worker is told to stop.",
        "Try so often again.",
        "Whoever comes next takes it over.",
        "Nobody plans now.",
        "This is no number of ours.",
        "A worker keeps its lease until it is over, and the lease lapses.",
        "Jobs are given back.",
        "What runs goes on.",
        f"A sentence {'and a word ' * 12}is too long.",
    ],
)
def test_a_habit_is_found(sentence):
    assert findings([sentence])


@pytest.mark.parametrize(
    "sentence",
    [
        "What happens to units in flight?",
        "What differs",
        "The call is no longer needed, and there is no leader.",
        "It takes so long that the lease expires.",
        "A claim is released. A lease expires. The worker reports it.",
    ],
)
def test_plain_words_pass(sentence):
    assert not findings([sentence])


def test_code_tables_and_lists_are_read_apart():
    """A code block is not prose, a cell is a text of its own, and inline code is one word."""
    table = "| one | two \\| three |\n|---|---|\n| [a](b) | **c** |\n"
    page = f"# Title\n\nRun `a b c`:\n\n```sh\nnobody reads this\n```\n\n{table}\n- x\n- y\n"
    assert paragraphs(page) == ["Title", "Run code:", "one", "two \\| three", "a", "c", "x", "y"]
