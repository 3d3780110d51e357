"""Questions to documents, and vectors."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models.factory import Models
from jobwire.handlers.llm.payloads import Document
from jobwire.handlers.llm.sentences import Sentence, sentences, split
from jobwire.handlers.llm.vectors import cosine_similarity
from jobwire.job.errors import Fail, Retry
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import Act, Upstream, answers, refuses, says, vectors
from tests.support import clause

# One process loads the local model for all of these.
pytestmark = pytest.mark.xdist_group("local-model")
PAPERS = ["The pump is blue. It is heavy.", {"id": "b", "text": "The warranty lasts 24 months."}]
NEAR, FAR, NOWHERE = (1.0, 0.1), (0.5, 0.5), (0.0, 1.0)


def _bench(url: str, **settings: object) -> Bench:
    return Bench(
        LlmSettings(base_url=url, model="tester", embed_model="tester-embed", **settings)  # pyright: ignore[reportArgumentType] - each test gives its own
    )


# ── rag ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-50")
async def test_j50_a_real_model_answers_with_exact_citations() -> None:
    found = vectors(FAR, NOWHERE, NEAR)
    answer = json.dumps({"answer": 'It lasts "24" months.', "sources": [1, 1, 7]})
    async with Upstream(found, vectors((1.0, 0.0)), says(answer[:20], answer[20:])) as upstream:
        record = await _bench(upstream.url).run(
            "rag", {"question": "How long?", "documents": PAPERS, "top_k": 2}
        )
    assert record.result == {
        "answer": 'It lasts "24" months.',
        "citations": [{"id": "b", "quote": "The warranty lasts 24 months.", "score": 0.995}],
        "found": True,
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        "model": "tester",
    }
    assert record.text() == record.result["answer"]
    assert record.of("sources") == [
        {
            "items": [
                {"id": "b", "score": 0.995, "text": "The warranty lasts 24 months."},
                {"id": "1", "score": 0.7071, "text": "The pump is blue."},
            ]
        }
    ]
    texts, question, asked = (request.body for request in upstream.requests)
    assert texts["input"] == ["The pump is blue.", "It is heavy.", "The warranty lasts 24 months."]
    assert question["input"] == ["How long?"]
    assert "[1] The warranty lasts 24 months." in asked["messages"][1]["content"]


async def _record_of_a_failed_run(
    payload: Mapping[str, object], *acts: Act, **settings: object
) -> dict[str, str]:
    """The steps of a run whose model server refuses what comes after these answers."""
    async with Upstream(*acts, refuses(400)) as upstream:
        bench = _bench(upstream.url, **settings)
        ctx, sink = bench.context("rag", payload)
        with pytest.raises(Fail):
            await bench.handle(ctx)
    return dict(sink.steps.fields)


@clause("J-50", "D-1")
@pytest.mark.parametrize("is_recorded", [True, False])
async def test_d01_a_batch_of_vectors_is_not_paid_twice(is_recorded: bool) -> None:
    texts = [f"Sentence number {n} is here." for n in range(20)]
    payload = {"question": "Where?", "documents": [" ".join(texts)]}
    first, rest, question = [NOWHERE] * 16, [FAR, NEAR, FAR, FAR], (1.0, 0.0)
    ((field, value),) = (await _record_of_a_failed_run(payload, vectors(*first))).items()
    if not is_recorded:  # it was too large for the record
        value = json.dumps([1, 1, ["", 2, 5, "tester-embed"]])
    answer = says(json.dumps({"answer": "Here.", "sources": [1]}))
    acts = [vectors(*rest), vectors(question), answer]
    if not is_recorded:
        acts.insert(0, vectors(*first))
    async with Upstream(*acts) as upstream:
        found = await _bench(upstream.url).run("rag", payload, deliveries=2, record={field: value})
    paid = [request.body["input"] for request in upstream.requests if "input" in request.body]
    assert paid == ([] if is_recorded else [texts[:16]]) + [texts[16:], ["Where?"]]
    assert found.result["citations"][0]["quote"] == texts[17]


@clause("J-50", "D-1")
async def test_d01_each_batch_of_vectors_is_recorded_unless_it_is_too_large() -> None:
    texts = [f"Sentence number {n} is here." for n in range(20)]
    for width, is_recorded in ((2, True), (4000, False)):
        found = [(1.0,) * width] * 16
        payload = {"question": "Where?", "documents": [" ".join(texts)]}
        (stored,) = (await _record_of_a_failed_run(payload, vectors(*found))).items()
        assert stored[0].startswith("s:rag.embed-0")
        assert bool(json.loads(stored[1])[2][0]) is is_recorded


@clause("J-50", "D-1")
async def test_d01_recorded_vectors_are_of_the_same_texts(tmp_path: Path) -> None:
    """Regression: after a change of the index a retry used the vectors of its former texts."""
    settings = {"index_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    payload = {"question": "What is blue?", "index": "manual"}
    index = tmp_path / "manual.json"
    index.write_text('["The pump is blue.", "The hose is green."]')
    acts = vectors(NEAR, NOWHERE), vectors(NEAR)
    record = await _record_of_a_failed_run(payload, *acts, **settings)
    texts = ["The warranty lasts 24 months.", "The pump is blue."]
    index.write_text(json.dumps(texts))
    answer = says(json.dumps({"answer": "The pump.", "sources": [1]}))
    async with Upstream(vectors(NOWHERE, NEAR), vectors(NEAR), answer) as upstream:
        bench = _bench(upstream.url, **settings)
        retried = await bench.run("rag", payload, attempt=2, deliveries=2, record=record)
    paid = [request.body["input"] for request in upstream.requests if "input" in request.body]
    assert paid == [texts, ["What is blue?"]]
    assert retried.result["citations"][0]["quote"] == "The pump is blue."
    async with Upstream(vectors(NEAR), answer) as upstream:  # with the cached vectors
        later = await _bench(upstream.url, **settings).run("rag", payload)
    assert later.result["citations"] == retried.result["citations"]


@clause("J-50", "D-1")
async def test_d01_recorded_vectors_are_of_the_same_model() -> None:
    """Regression: with another embedding model a retry used the vectors of the former one."""
    payload = {"question": "How long?", "documents": PAPERS}
    record = await _record_of_a_failed_run(payload, vectors(NEAR, FAR, FAR))
    other = [(0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)]
    answer = says(json.dumps({"answer": "24 months.", "sources": [1]}))
    async with Upstream(vectors(*other), vectors(other[2]), answer) as upstream:
        bench = Bench(LlmSettings(base_url=upstream.url, model="tester", embed_model="other-embed"))
        retried = await bench.run("rag", payload, attempt=2, deliveries=2, record=record)
    assert retried.result["citations"][0]["quote"] == "The warranty lasts 24 months."


@clause("J-50", "D-1")
async def test_d01_vectors_for_which_the_record_has_no_space_are_not_recorded() -> None:
    """Regression: a record that vectors of former texts have filled failed the job."""
    record = {"s:rag.embed-0-former": json.dumps([1, 1, "x" * 4_194_250])}
    answer = says(json.dumps({"answer": "24 months.", "sources": [1]}))
    async with Upstream(vectors(FAR, NOWHERE, NEAR), vectors(NEAR), answer) as upstream:
        bench = _bench(upstream.url)
        payload = {"question": "How long?", "documents": PAPERS}
        found = await bench.run("rag", payload, attempt=2, deliveries=2, record=record)
    assert found.result["citations"][0]["quote"] == "The warranty lasts 24 months."


@clause("J-50")
async def test_j50_a_real_model_may_find_nothing() -> None:
    answer = json.dumps({"answer": "The sources do not say.", "sources": []})
    async with Upstream(vectors(FAR, NOWHERE, NEAR), vectors(NEAR), says(answer)) as upstream:
        record = await _bench(upstream.url).run("rag", {"question": "Who?", "documents": PAPERS})
    assert record.result["answer"] == "The sources do not say."
    assert (record.result["citations"], record.result["found"]) == ([], False)


@clause("J-50")
@pytest.mark.parametrize(
    ("text", "finish", "code"),
    [
        ('{"answer": "It la', "length", "output_truncated"),
        ("It lasts long.", "stop", "output_invalid"),
        ('{"answer": "", "sources": []}', "stop", "output_invalid"),
    ],
)
async def test_j50_a_truncated_answer_is_an_error(text: str, finish: str, code: str) -> None:
    acts = (vectors(FAR, NOWHERE, NEAR), vectors(NEAR), says(text, finish=finish))
    async with Upstream(*acts) as upstream:
        with pytest.raises(Fail) as failed:
            await _bench(upstream.url).run("rag", {"question": "Who?", "documents": PAPERS})
    assert failed.value.code == code


@clause("J-50")
async def test_j50_below_the_score_no_model_is_called() -> None:
    async with Upstream(vectors(NOWHERE, NOWHERE, NOWHERE), vectors((1.0, 0.0))) as upstream:
        record = await _bench(upstream.url).run("rag", {"question": "Who?", "documents": PAPERS})
    assert record.result["found"] is False
    assert [each.path for each in upstream.requests] == ["/v1/embeddings"] * 2


@clause("J-50")
async def test_j50_the_small_model_chooses_between_similar_sources(local: Bench) -> None:
    documents = ["A ticket costs three euros. A day ticket costs eight euros."]
    record = await local.run(
        "rag", {"question": "How much is a single ticket?", "documents": documents}
    )
    scores = [item["score"] for item in record.of("sources")[0]["items"]]
    assert scores[0] - scores[1] < 0.1
    (citation,) = record.result["citations"]
    assert record.result["answer"] == citation["quote"] == record.text()
    assert citation["quote"] in documents[0]


@clause("J-50")
async def test_j50_a_stop_text_that_cuts_the_source_fails_the_job(local: Bench) -> None:
    documents = ["A ticket costs three euros. A day ticket costs eight euros."]
    asked = {"question": "How much is a single ticket?", "documents": documents, "stop": "costs"}
    with pytest.raises(Fail, match="omit `stop`") as failed:
        await local.run("rag", asked)
    assert failed.value.code == "output_invalid"


@clause("J-50")
@pytest.mark.parametrize("documents", [None, [], ["  \n "]])
async def test_j50_a_question_needs_documents(documents: object) -> None:
    with pytest.raises(Fail) as failed:
        await _bench("http://127.0.0.1:9").run("rag", {"question": "Who?", "documents": documents})
    assert failed.value.code == "rag_no_documents"


@clause("J-50")
async def test_j50_too_many_sentences_are_refused_before_embedding() -> None:
    documents = [" ".join(f"This is sentence {n}." for n in range(1001))]
    with pytest.raises(Fail, match="1001") as failed:
        await _bench("http://127.0.0.1:9").run("rag", {"question": "?", "documents": documents})
    assert failed.value.code == "embed_too_many"


@clause("J-50")
async def test_j50_an_index_is_embedded_once(tmp_path: Path) -> None:
    (tmp_path / "papers.json").write_text(json.dumps(PAPERS))
    answer = says(json.dumps({"answer": "Two years.", "sources": [1]}))
    texts, question = vectors(FAR, NOWHERE, NEAR), vectors((1.0, 0.0))
    async with Upstream(texts, question, answer, question, answer) as upstream:
        bench = _bench(upstream.url, index_dir=tmp_path, cache_dir=tmp_path / "cache")
        asked = {"question": "How long?", "index": "papers"}
        first, again = await bench.run("rag", asked), await bench.run("rag", asked)
        assert first.result["citations"][0]["id"] == "b"
        assert again.result == first.result
        assert len(upstream.requests) == 5
        # A changed file is another index.
        (tmp_path / "papers.json").write_text(json.dumps(["Something else."]))
        upstream.acts = [vectors(NEAR), question, answer]
        changed = await bench.run("rag", asked)
    assert changed.result["citations"][0]["quote"] == "Something else."


@clause("J-50")
async def test_j50_an_index_by_its_name_on_the_local_model(
    local: Bench, local_models: Models, tmp_path: Path
) -> None:
    (tmp_path / "house.json").write_text(
        json.dumps([{"id": "cellar", "text": "The wine is in the cellar."}, "Cats sleep a lot."])
    )
    settings = replace(local.settings, index_dir=tmp_path, cache_dir=tmp_path / "cache")
    bench = Bench(settings, models=local_models)
    asked = {"question": "Where is the wine?", "index": "house"}
    first, again = await bench.run("rag", asked), await bench.run("rag", asked)
    assert first.result["answer"] == "The wine is in the cellar."
    assert first.result["citations"][0]["id"] == "cellar"
    # The kept vectors are 32-bit numbers: equal in the digits of the result.
    assert again.result == first.result
    assert len(list((tmp_path / "cache" / "vectors").iterdir())) == 1


@clause("J-50")
async def test_j50_an_index_works_without_a_writable_cache(tmp_path: Path) -> None:
    (tmp_path / "papers.json").write_text(json.dumps(PAPERS))
    (tmp_path / "cache").write_text("a file where a folder should be")
    answer = says(json.dumps({"answer": "Two years.", "sources": [1]}))
    acts = (vectors(FAR, NOWHERE, NEAR), vectors((1.0, 0.0)), answer)
    async with Upstream(*acts) as upstream:
        bench = _bench(upstream.url, index_dir=tmp_path, cache_dir=tmp_path / "cache")
        record = await bench.run("rag", {"question": "How long?", "index": "papers"})
    assert record.result["found"] is True


@clause("J-50")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent", None, "no index 'absent'"),
        ("broken", "{", "not a list of texts"),
        ("other", '[{"title": "x"}]', "not a list of texts"),
    ],
)
async def test_j50_an_unknown_index_is_an_error(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / f"{name}.json").write_text(content)
    bench = _bench("http://127.0.0.1:9", index_dir=tmp_path)
    with pytest.raises(Fail, match=words) as failed:
        await bench.run("rag", {"question": "Who?", "index": name})
    assert failed.value.code == "rag_index_unknown"


@clause("J-50")
async def test_j50_a_worker_without_indexes_fails_with_a_reason() -> None:
    with pytest.raises(Fail, match=r"llm\.index_dir") as failed:
        await _bench("http://127.0.0.1:9").run("rag", {"question": "Who?", "index": "papers"})
    assert failed.value.code == "rag_index_unknown"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("One. Two! Three? four.", ["One.", "Two!", "Three? four."]),
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("Ask Dr. Smith. He knows.", ["Ask Dr. Smith.", "He knows."]),
        ("Version 2.5 is out. It works.", ["Version 2.5 is out.", "It works."]),
        ("A title\n\nA text\nthat goes on.", ["A title", "A text that goes on."]),
        ("Items:\n- one\n- two", ["Items:", "- one", "- two"]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_texts_are_cut_into_sentences(text: str, cut: list[str]) -> None:
    assert list(split(text)) == cut


def test_no_sentence_is_too_long_to_be_embedded() -> None:
    for text in ("word " * 2000, "x" * 5000, "字" * 2000):
        pieces = list(split(text))
        assert "".join("".join(pieces).split()) == "".join(text.split())
        assert all(len(piece) <= 4 * 450 for piece in pieces)


def test_documents_are_named_by_their_id_or_position() -> None:
    assert sentences(["A.", Document("B."), Document("C.", "x"), "A."]) == [
        Sentence("1", "A."),
        Sentence("2", "B."),
        Sentence("x", "C."),
        Sentence("4", "A."),
    ]


# ── embed ────────────────────────────────────────────────────────────────────────────────────────


@clause("J-50")
async def test_j50_vectors_are_in_the_order_of_their_texts() -> None:
    async with Upstream(vectors((1.0, 0.25), (0.123456789, -2.0))) as upstream:
        record = await _bench(upstream.url).run("embed", {"input": ["a", "b"]})
    assert record.result == {
        "model": "tester-embed",
        "dim": 2,
        "vectors": [[1.0, 0.25], [0.123457, -2.0]],
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


@clause("J-50")
async def test_j50_vectors_as_base64_are_the_same_numbers() -> None:
    async with Upstream(vectors((1.0, 0.25, -3.5))) as upstream:
        record = await _bench(upstream.url).run("embed", {"input": "a", "encoding": "base64"})
    (packed,) = record.result["vectors"]
    assert list(array("f", base64.b64decode(packed))) == [1.0, 0.25, -3.5]


@clause("J-50")
async def test_j50_both_encodings_are_equal(local: Bench) -> None:
    texts = ["a red apple", "Grüße aus Köln"]
    plain = await local.run("embed", {"input": texts})
    packed = await local.run("embed", {"input": texts, "encoding": "base64"})
    unpacked = [array("f", base64.b64decode(each)) for each in packed.result["vectors"]]
    assert [[round(number, 6) for number in each] for each in unpacked] == plain.result["vectors"]
    assert {**packed.result, "vectors": None} == {**plain.result, "vectors": None}


@clause("J-50")
async def test_j50_many_texts_are_embedded_in_batches_with_progress(local: Bench) -> None:
    record = await local.run("embed", {"input": [f"text {n}" for n in range(40)]})
    assert len(record.result["vectors"]) == 40
    assert [each["done"] for each in record.of("progress")] == [16, 32, 40]
    assert {each.step for each in record.events} == {"embed.batch"}


@clause("J-50")
@pytest.mark.parametrize("count", [0, 65])
async def test_j50_a_job_takes_64_texts(count: int) -> None:
    with pytest.raises(Fail, match="1 to 64") as failed:
        await _bench("http://127.0.0.1:9").run("embed", {"input": ["x"] * count})
    assert failed.value.code == "embed_too_many"


@clause("J-50")
async def test_j50_vectors_larger_than_a_result_are_refused() -> None:
    async with Upstream(vectors(*[[0.5] * 3000] * 16)) as upstream:
        with pytest.raises(Fail, match="base64") as failed:
            await _bench(upstream.url).run("embed", {"input": ["x"] * 64})
    assert failed.value.code == "embed_too_many"


@clause("J-50")
async def test_j50_a_text_that_is_too_long_is_an_error(local: Bench) -> None:
    with pytest.raises(Fail, match="702 tokens") as failed:
        await local.run("embed", {"input": ["short", "word " * 700]})
    assert failed.value.code == "embed_text_too_long"


@clause("J-51")
@pytest.mark.parametrize(
    ("act", "signal", "code"),
    [
        (refuses(401, "no"), Fail, "backend_auth"),
        (refuses(400, "Input length exceeds the maximum"), Fail, "embed_text_too_long"),
        (refuses(501, "start it with --embeddings"), Fail, "backend_bad_response"),
        (answers(200, "<html>", "text/html"), Fail, "backend_bad_response"),
        (vectors((1.0, 2.0)), Fail, "backend_bad_response"),
        (vectors((1.0, 2.0), (1.0,)), Fail, "backend_bad_response"),
        (refuses(429, "slow", retry_after="60"), Retry, "backend_rate_limited"),
    ],
)
async def test_j51_errors_of_an_embedding_server_have_codes(
    act: object, signal: type[Fail | Retry], code: str
) -> None:
    async with Upstream(act) as upstream:  # pyright: ignore[reportArgumentType] - one of those above
        with pytest.raises(signal) as failed:
            await _bench(upstream.url).run("embed", {"input": ["a", "b"]})
    assert failed.value.code == code
    assert len(upstream.requests) == 1


@clause("J-51")
async def test_j51_an_embedding_server_that_recovers_is_retried() -> None:
    async with Upstream(refuses(503, "loading"), vectors((1.0,))) as upstream:
        record = await _bench(upstream.url).run("embed", {"input": "a"})
    assert record.result["dim"] == 1
    assert record.of("log")[0]["level"] == "warning"


@clause("J-51")
async def test_j51_another_server_for_vectors_does_not_get_our_key() -> None:
    async with Upstream(vectors((1.0,))) as upstream:
        settings = LlmSettings(
            base_url="http://127.0.0.1:9",
            model="tester",
            api_key=KEY,
            embed_base_url=upstream.url,
            embed_model="tester-embed",
        )
        await Bench(settings).run("embed", {"input": "a"})
    assert "authorization" not in upstream.requests[0].headers


def test_cosine_similarity_does_not_depend_on_length() -> None:
    assert cosine_similarity((3.0, 4.0), (6.0, 8.0)) == pytest.approx(1.0)
    assert cosine_similarity((1.0, 0.0), (0.0, 5.0)) == 0.0
    assert cosine_similarity((0.0, 0.0), (1.0, 1.0)) == 0.0
