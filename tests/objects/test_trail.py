"""The trail of writers tells who won, in every order of events (P-12)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from jobwire.objects.write_history import (
    Verdict,
    Version,
    extended,
    from_field,
    judge,
    new_writer,
    to_field,
)
from tests.support import clause

WON = (Verdict.WON, Verdict.OVERTAKEN)


@dataclass
class Model:
    """A store that keeps conditions, in memory; and the truth about who wrote."""

    now: Version | None = None
    winners: list[str] = field(default_factory=list[str])

    def write(self, writer: str, seen: Version | None) -> bool:
        if self.now != seen:
            return False
        self.now = Version(f'"{writer}"', extended(writer, seen))
        self.winners.append(writer)
        return True


@dataclass
class Writer:
    """A client with one write on its mind, sent until its fate is known."""

    seen: Version | None
    nonce: str = field(default_factory=new_writer)
    doubt: bool = False
    verdict: Verdict | None = None

    def send(self, store: Model, *, arrives: bool, answered: bool) -> None:
        if self.verdict is not None:
            return
        wrote = store.write(self.nonce, self.seen) if arrives else False
        if answered and arrives and wrote:
            self.verdict = Verdict.WON
        elif not (answered and arrives):
            self.doubt = True

    def look(self, store: Model) -> None:
        if self.verdict is None:
            verdict = judge(writer=self.nonce, seen=self.seen, found=store.now, doubt=self.doubt)
            self.verdict = None if verdict is Verdict.AGAIN else verdict


@clause("P-12")
@given(
    existing=st.booleans(),
    events=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.booleans(), st.booleans()), max_size=40
    ),
)
def test_p12_nobody_is_wrong_about_having_won(
    existing: bool, events: list[tuple[int, bool, bool, bool]]
) -> None:
    store = Model()
    if existing:
        store.write("origin", None)
    writers = [Writer(store.now) for _ in range(4)]
    for each, looks, arrives, answered in events:
        if looks:
            writers[each].look(store)
        else:
            writers[each].send(store, arrives=arrives, answered=answered)
        # Whoever knows its fate makes place for the next one, who saw what is there now.
        if writers[each].verdict is not None:
            _check(writers[each], store)
            writers[each] = Writer(store.now)
    for writer in writers:
        writer.look(store)
        _check(writer, store)


def _check(writer: Writer, store: Model) -> None:
    # Sixteen writers are remembered; more between a write and a look may leave it unclear.
    if writer.verdict is Verdict.UNCLEAR:
        assert len(store.winners) > 15
    elif writer.verdict is None:
        assert writer.nonce not in store.winners
    else:
        assert (writer.verdict in WON) == (writer.nonce in store.winners)


def test_a_trail_is_bounded_and_survives_a_header() -> None:
    version = None
    for number in range(40):
        version = Version(f'"{number}"', extended(f"writer{number}", version))
    assert version
    assert len(version.trail) == 16
    assert version.trail[0] == "writer39"
    assert from_field(to_field(version.trail)) == version.trail
    assert len(to_field(version.trail)) < 512
    assert (from_field(None), from_field("")) == ((), ())


def test_a_refusal_is_believed_where_every_answer_came() -> None:
    """Somebody without a trail wrote first: there is nothing unclear about a plain refusal."""
    old, theirs = Version('"old"'), Version('"theirs"')
    assert judge(writer="me", seen=old, found=theirs, doubt=False) is Verdict.LOST
    assert judge(writer="me", seen=old, found=theirs, doubt=True) is Verdict.UNCLEAR


def test_a_strangers_object_is_known_by_its_tag() -> None:
    """Two of ours replace an object that has no trail; the loser's answer is lost."""
    theirs = Version('"theirs"')
    winner = Version('"won"', extended("winner", theirs))
    assert judge(writer="loser", seen=theirs, found=winner, doubt=True) is Verdict.LOST
