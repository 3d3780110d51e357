"""The write history shows which write won, in every order of events (P-12)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from jobwire.objects.write_history import (
    Verdict,
    Version,
    appended,
    from_field,
    judge,
    new_writer,
    to_field,
)
from tests.support import clause

WON = (Verdict.WON, Verdict.OVERTAKEN)


@dataclass
class Model:
    """An in-memory store with conditional writes that records the real winners."""

    current: Version | None = None
    winners: list[str] = field(default_factory=list[str])

    def write(self, writer: str, seen: Version | None) -> bool:
        if self.current != seen:
            return False
        self.current = Version(f'"{writer}"', appended(writer, seen))
        self.winners.append(writer)
        return True


@dataclass
class Writer:
    """A client that repeats one write until its outcome is known."""

    seen: Version | None
    nonce: str = field(default_factory=new_writer)
    uncertain: bool = False
    verdict: Verdict | None = None

    def send(self, store: Model, *, arrives: bool, answered: bool) -> None:
        if self.verdict is not None:
            return
        wrote = store.write(self.nonce, self.seen) if arrives else False
        if answered and arrives and wrote:
            self.verdict = Verdict.WON
        elif not (answered and arrives):
            self.uncertain = True

    def read(self, store: Model) -> None:
        if self.verdict is None:
            verdict = judge(
                writer=self.nonce, seen=self.seen, found=store.current, uncertain=self.uncertain
            )
            self.verdict = None if verdict is Verdict.RETRY else verdict


@clause("P-12")
@given(
    existing=st.booleans(),
    events=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.booleans(), st.booleans()), max_size=40
    ),
)
def test_p12_no_writer_is_wrong_about_its_outcome(
    existing: bool, events: list[tuple[int, bool, bool, bool]]
) -> None:
    store = Model()
    if existing:
        store.write("origin", None)
    writers = [Writer(store.current) for _ in range(4)]
    for each, reads, arrives, answered in events:
        if reads:
            writers[each].read(store)
        else:
            writers[each].send(store, arrives=arrives, answered=answered)
        # A writer with a known outcome is replaced by one that has seen the current version.
        if writers[each].verdict is not None:
            _check(writers[each], store)
            writers[each] = Writer(store.current)
    for writer in writers:
        writer.read(store)
        _check(writer, store)


def _check(writer: Writer, store: Model) -> None:
    # Sixteen writers are kept; more between a write and its read may leave it unclear.
    if writer.verdict is Verdict.UNCLEAR:
        assert len(store.winners) > 15
    elif writer.verdict is None:
        assert writer.nonce not in store.winners
    else:
        assert (writer.verdict in WON) == (writer.nonce in store.winners)


def test_the_history_is_bounded_and_survives_a_header() -> None:
    version = None
    for number in range(40):
        version = Version(f'"{number}"', appended(f"writer{number}", version))
    assert version
    assert len(version.history) == 16
    assert version.history[0] == "writer39"
    assert from_field(to_field(version.history)) == version.history
    assert len(to_field(version.history)) < 512
    assert (from_field(None), from_field("")) == ((), ())


def test_a_refusal_is_definite_if_every_attempt_was_answered() -> None:
    """A program without write history wrote first: a refusal is definite."""
    old, theirs = Version('"old"'), Version('"theirs"')
    assert judge(writer="me", seen=old, found=theirs, uncertain=False) is Verdict.LOST
    assert judge(writer="me", seen=old, found=theirs, uncertain=True) is Verdict.UNCLEAR


def test_an_object_without_history_is_identified_by_its_etag() -> None:
    """Two writers replace an object without write history; the loser's reply is lost."""
    theirs = Version('"theirs"')
    winner = Version('"won"', appended("winner", theirs))
    assert judge(writer="loser", seen=theirs, found=winner, uncertain=True) is Verdict.LOST
