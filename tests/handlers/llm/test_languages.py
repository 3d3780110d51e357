"""Documents and plans in other languages than English."""

from __future__ import annotations

import pytest

from jobwire.handlers.llm import grammars
from jobwire.handlers.llm.models.factory import Models
from jobwire.handlers.llm.sentences import split
from tests.handlers.llm.recorder import Bench
from tests.support import clause

TEXTS = {
    "Cyrillic": ["Насос требует ухода.", "Гарантия действует два года."],
    "Chinese": ["水泵需要保养。", "保修期为两年。"],
    "Greek": ["Η αντλία είναι νέα.", "Ελέγξτε την κάθε μήνα."],
    "emoji": ["It works!", "🎉 We are done."],
    "Arabic": ["المضخة جديدة.", "الضمان سنتان."],
}


@clause("J-50")
@pytest.mark.parametrize("language", TEXTS)
def test_j50_sentences_of_other_scripts_are_split(language: str) -> None:
    sentences = TEXTS[language]
    separator = "" if language == "Chinese" else " "
    assert list(split(separator.join(sentences))) == sentences


@clause("J-50")
@pytest.mark.xdist_group("local-model")
async def test_j50_a_plan_may_be_in_another_script(local: Bench, local_models: Models) -> None:
    """The grammar accepts it; the small model's text is not checked."""
    result = (await local.run("plan", {"goal": "Испечь хлеб", "max_steps": 2})).result
    assert 1 <= len(result["steps"]) <= 2
    assert result["model"]
    assert "u3002" in grammars.numbered_list(2)
