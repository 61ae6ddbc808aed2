"""What the state file keeps of sources: places and items, bounded, whole or not at all."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain_watchdog.model import Diagnosis, Event, Metric, Row, TokenBatch
from posttrain_watchdog.sources.checkpoints import Checkpoints, Place
from posttrain_watchdog.sources.engines.responses import Answer, Settings
from posttrain_watchdog.sources.engines.responses import Position as Sampled
from posttrain_watchdog.sources.packed_items import pack, unpack
from posttrain_watchdog.sources.readers import Answers
from posttrain_watchdog.sources.samples import Sample, Samples, by_step
from posttrain_watchdog.sources.tail import Position
from posttrain_watchdog.state import State, StateError

LOG = Path("/logs/train.log")
LOSS = Metric("posttrain_trainer_loss", {"rank": "3"})
texts = st.text(max_size=20)
steps = st.none() | st.integers(-(2**62), 2**62)
times = st.none() | st.floats(allow_nan=False)


def again(item: object) -> object:
    packed = pack(item)  # type: ignore[arg-type]
    assert packed is not None
    return unpack(packed)


@given(st.dictionaries(st.builds(Metric, texts, st.dictionaries(texts, texts, max_size=3)), st.floats()), steps, times)
def test_rows_come_back_as_they_were(values: dict[Metric, float], step: int | None, time: float | None) -> None:
    back = again(Row(values, step, time))
    assert isinstance(back, Row)
    assert (back.step, back.time, list(back.values)) == (step, time, list(values))
    assert [m.labels for m in back.values] == [m.labels for m in values]
    assert np.array_equal(list(back.values.values()), list(values.values()), equal_nan=True)


@given(texts, texts, st.dictionaries(texts, texts, max_size=3), steps, times)
def test_events_come_back_as_they_were(
    kind: str, text: str, labels: dict[str, str], step: int | None, time: float | None
) -> None:
    assert again(Event(kind, text, labels, step, time)) == Event(kind, text, labels, step, time)


def test_numbers_of_numpy_are_kept_as_plain_ones() -> None:
    assert again(Row({LOSS: np.float64(1.5)}, 3)) == Row({LOSS: 1.5}, 3)


def test_batches_come_back_with_everything_that_they_hold() -> None:
    batch = TokenBatch(
        offsets=np.array([0, 2, 3]),
        engine_logprobs=np.array([-1.0, np.nan, -np.inf], np.float32),
        trainer_logprobs=np.array([-1.5, -0.25, -2.0], np.float32),
        mask=np.array([True, False, True]),
        step=np.array([7, 7]),
        engine_top_ids=np.array([[1, 2], [3, 4], [5, -1]], np.int32),
        finish_reason=["stop", "length"],
        labels={"replica": ["a", "b"], "dtype": ["x", ""]},
        extra={"trainer_rescored": np.array([1.0, 2.0, 3.0])},
        prompt_ids=[np.array([1, 2], np.int32), np.array([], np.int32)],
    )
    back = again(batch)
    assert isinstance(back, TokenBatch)
    for each in fields(batch):
        was, now = getattr(batch, each.name), getattr(back, each.name)
        np.testing.assert_equal(now, was, err_msg=each.name)
        assert getattr(now, "dtype", None) == getattr(was, "dtype", None), each.name
    back.mask[0] = False  # it can be written to, as one that was just read


def test_samples_without_tokens_come_back_too() -> None:
    samples = next(by_step([Sample(3, 1.0, 12, True, "p", "a text"), Sample(3, None, None, None, None, "")]))
    samples.lineage, samples.attempt, samples.reading = "/l", 2, 1
    back = again(samples)
    assert isinstance(back, Samples)
    for each in fields(samples):
        np.testing.assert_equal(getattr(back, each.name), getattr(samples, each.name), err_msg=each.name)


def test_answers_come_back_as_they_were() -> None:
    answer = Answer(
        "chat", 200, Settings(True, 0.7, logprobs=5), 2, [-0.1, None], True, [Sampled(-0.1, True, (-0.1, -2.0))],
        [(-0.1, -math.inf)], "", 4, "digest", [("a", {"a": -0.1})], True,
    )  # fmt: skip
    assert again(Answers([answer], 4, 2.0)) == Answers([answer], 4, 2.0)


def test_what_is_made_anew_is_not_kept() -> None:
    assert pack(Diagnosis("healthy", 1.0, "", {}, ())) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x91\x09", b"\x92\x00\x01", b"\x93\x03\x80\x80", b"\x92\x03\xd4\x07\x00", b"not msgpack at all"],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected a kept item"):
        unpack(data)


def test_places_come_back_as_they_were(tmp_path: Path) -> None:
    state = State(tmp_path / "state.sqlite")
    first, second, third = Path("/logs/a.log"), Path("/logs/b.jsonl"), Path("journal:train.service")
    lines = Place(Position(2**63 + 1, 2**64 - 1, "head", 256, 1 << 40))
    whole = Place(modified=1764608352.1234567, last_step=12)
    journal = Place(cursor="s=1;i=2", last_lines=(b"\xff\x00", b""))
    checkpoints = Checkpoints(state)
    checkpoints.save("run", {first: lines, second: whole})
    checkpoints.save("other", {third: journal})
    state.close()
    back = Checkpoints(State(tmp_path / "state.sqlite"))
    assert back.places("run") == {first: lines, second: whole}
    assert back.places("other") == {third: journal}
    back.forget("run")
    assert back.places("run") == {}


def test_a_failure_takes_the_items_and_the_place_back_together() -> None:
    state = State(None)
    checkpoints = Checkpoints(state)
    checkpoints.note("run", LOG, 1.0, Event("oom", "first"))
    with pytest.raises(RuntimeError), state.transaction():
        checkpoints.save("run", {LOG: Place(offset=5)})
        raise RuntimeError
    assert list(checkpoints.items()) == []
    assert checkpoints.places("run") == {}


class Full(State):
    """A disk on which nothing has room any more."""

    full = False

    def transaction(self):  # type: ignore[no-untyped-def]
        if self.full:
            raise StateError("no space left on device")
        return super().transaction()


def test_while_the_disk_is_full_items_wait_and_the_place_waits_with_them() -> None:
    state = Full(None)
    checkpoints = Checkpoints(state, most_light=3, most_heavy=1)
    state.full = True
    for n in range(5):
        checkpoints.note("run", LOG, float(n), Event("oom", str(n)))
        with pytest.raises(StateError):
            checkpoints.save("run", {LOG: Place(offset=n + 1)})
    state.full = False
    assert checkpoints.places("run") == {}
    checkpoints.save("run", {LOG: Place(offset=5)})
    assert [k.at for k in checkpoints.items()] == [2.0, 3.0, 4.0]  # bounded: the newest three
    assert checkpoints.places("run") == {LOG: Place(offset=5)}


def test_of_a_long_run_the_newest_is_kept_and_of_another_run_everything() -> None:
    checkpoints = Checkpoints(State(None), most_light=20, most_heavy=2)
    checkpoints.note("other", LOG, 0.0, Event("oom", "other"))
    checkpoints.save("other", {})
    for n in range(100):
        checkpoints.note("run", LOG, float(n), Row({LOSS: 1.0}, n))
        if n % 10 == 0:
            checkpoints.note("run", LOG, float(n), Answers([], n))
        checkpoints.save("run", {})
    kept = list(checkpoints.items())
    rows = [k.item.step for k in kept if k.run == "run" and isinstance(k.item, Row)]
    samples = [k.item.step for k in kept if isinstance(k.item, Answers)]
    assert rows[-20:] == list(range(80, 100))
    assert len(rows) <= 23  # pruned now and then, not at every save
    assert samples[-2:] == [80, 90]
    assert len(samples) <= 3
    assert [k.run for k in kept].count("other") == 1


def test_records_that_cannot_be_read_are_left_out_and_counted() -> None:
    state = State(None)
    checkpoints = Checkpoints(state)
    checkpoints.note("run", LOG, 1.0, Event("oom", "good"))
    checkpoints.save("run", {LOG: Place(offset=1)})
    with state.transaction() as connection:
        connection.execute("INSERT INTO items (run, heavy, path, at, item) VALUES ('run', 0, 'x', 1.0, x'c1')")
        connection.execute("INSERT INTO places VALUES ('run', 'x', x'c1')")
    assert [k.item for k in checkpoints.items()] == [Event("oom", "good")]
    assert checkpoints.places("run") == {LOG: Place(offset=1)}
    assert checkpoints.unread == 2
