"""Files of trackers: TensorBoard's event files and W&B's offline runs, as they grow and with damage in them."""

from __future__ import annotations

import json
import struct
import zlib

import pytest

from posttrain_watchdog.model import Event, Row
from posttrain_watchdog.sources import tensorboard, wandb_file
from posttrain_watchdog.sources.tracker_file import TrackerFile
from posttrain_watchdog.sources.wire import masked_crc32c
from posttrain_watchdog.vocabulary.trainer import PREFIX


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def framed(message: bytes) -> bytes:
    head = struct.pack("<Q", len(message))
    return head + struct.pack("<I", masked_crc32c(head)) + message + struct.pack("<I", masked_crc32c(message))


def scalar(tag: str, value: float, step: int, *, tensor: bool = False, time: float = 1000.0) -> bytes:
    if tensor:
        number = field(8, field(1, 1) + field(5, struct.pack("<f", value)))
    else:
        number = varint(2 << 3 | 5) + struct.pack("<f", value)
    summary = field(5, field(1, field(1, tag.encode()) + number))
    return framed(varint(1 << 3 | 1) + struct.pack("<d", time + step) + field(2, step) + summary)


def short(items: list[Row | Event]) -> list[tuple[int | None, dict[str, float]]]:
    return [
        (r.step, {(dict(m.labels).get("key") or m.name.removeprefix(PREFIX)): round(v, 4) for m, v in r.values.items()})
        for r in items
        if isinstance(r, Row)
    ]


def broken(reader: TrackerFile) -> bool:
    assert isinstance(reader.frames, tensorboard.TFRecords)
    return reader.frames.broken


VERSION = framed(varint(1 << 3 | 1) + struct.pack("<d", 1000.0) + field(3, b"brain.Event:2"))


def test_the_checksum_is_the_castagnoli_one() -> None:
    # RFC 3720, B.4: 32 bytes of zeros have CRC-32C 8A9136AA
    plain = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_tags_of_one_step_make_one_row_with_the_trainers_names() -> None:
    data = VERSION + b"".join(
        scalar("train/" + tag, value, step)
        for step in (1, 2)
        for tag, value in (("loss", 0.5), ("reward", 0.25), ("sampling/importance_sampling_ratio/mean", 0.9))
    )
    reader = tensorboard.reader()
    assert short(reader.feed(data)) == [(1, {"loss": 0.5, "reward_mean": 0.25, "is_weight_mean": 0.9})]
    last = reader.close()
    assert short(last) == [(2, {"loss": 0.5, "reward_mean": 0.25, "is_weight_mean": 0.9})]
    assert isinstance(last[0], Row) and last[0].time == 1002.0
    assert reader.dialect == "trl"


def test_other_trainers_are_told_by_their_tags_and_keep_their_signs() -> None:
    reader = tensorboard.reader()
    areal = [
        scalar("ppo_actor/update/behave_approx_kl/avg", -0.01, 3, tensor=True),
        scalar("ppo_actor/update/grad_norm", 2, 3),
    ]
    reader.feed(VERSION + b"".join(areal))
    assert short(reader.close()) == [(3, {"mismatch_kl_k1": 0.01, "grad_norm": 2.0})]
    assert reader.dialect == "areal"


@pytest.mark.parametrize("size", [1, 7, 100])
def test_an_event_file_may_come_in_any_pieces(size: int) -> None:
    data = VERSION + b"".join(scalar(tag, 1.0, step) for step in range(1, 6) for tag in ("actor/pg_loss", "actor/lr"))
    reader, found = tensorboard.reader(), []
    for place in range(0, len(data), size):
        found += reader.feed(data[place : place + size])
    found += reader.close()
    assert [step for step, _ in short(found)] == [1, 2, 3, 4, 5]
    assert reader.damaged == 0


def test_a_damaged_record_is_left_out_and_reading_goes_on() -> None:
    good, bad, after = (scalar("actor/pg_loss", float(n), n) for n in (1, 2, 3))
    bad = bad[:-6] + bytes([bad[-6] ^ 1]) + bad[-5:]
    reader = tensorboard.reader()
    found = reader.feed(good + bad + after) + reader.close()
    assert [step for step, _ in short(found)] == [1, 3]
    assert reader.damaged == 1 and not broken(reader)


def test_a_length_that_cannot_be_trusted_ends_the_file_without_memory() -> None:
    reader = tensorboard.reader()
    assert reader.feed(b"\xff" * 4096) == []
    assert broken(reader) and reader.damaged == 1
    assert reader.feed(scalar("actor/pg_loss", 1.0, 1)) == []


def test_a_gradient_that_is_nan_is_said() -> None:
    reader = tensorboard.reader()
    reader.feed(scalar("train/grad_norm", float("nan"), 4) + scalar("train/loss", 0.0, 4))
    assert [(i.kind, i.step) for i in reader.close() if isinstance(i, Event)] == [("nan_loss", 4)]


def history(values: dict[str, object], step: int) -> bytes:
    items = b"".join(
        field(1, field(1, key.encode()) + field(16, json.dumps(value).encode())) for key, value in values.items()
    )
    return field(1, step + 1) + field(2, items + field(2, field(1, step)))


def run_file(*records: bytes) -> bytes:
    """The framing as wandb writes it: seven bytes of head, blocks of 32 KiB."""
    out = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for record in records:
        first = True
        while True:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += bytes(left)
                left = 32768
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
            if not record:
                break
    return out


def metrics(step: int) -> dict[str, object]:
    return {
        "_step": step,
        "_timestamp": 1.7e9 + step,
        "actor/pg_loss": 0.5,
        "rollout_corr/kl": 0.001,
        "actor/grad_norm": "NaN" if step == 3 else 0.2,
        "critic/score/mean": 0.4,
        "table": {"_type": "table-file"},
    }


def test_an_offline_wandb_run_gives_its_history() -> None:
    reader = wandb_file.reader()
    found = reader.feed(run_file(*(history(metrics(step), step) for step in (1, 2, 3)))) + reader.close()
    rows = [item for item in found if isinstance(item, Row)]
    assert [row.step for row in rows] == [1, 2, 3]
    assert rows[0].time == 1.7e9 + 1
    assert short(found)[0][1] == {
        "policy_loss": 0.5,
        "mismatch_kl_k1": 0.001,
        "grad_norm": 0.2,
        "reward_mean": 0.4,
    }
    assert [(i.kind, i.step) for i in found if isinstance(i, Event)] == [("nan_loss", 3)]
    assert reader.dialect == "verl"


def test_records_over_several_blocks_and_in_any_pieces() -> None:
    long = field(1, 99) + field(4, b"x" * 80_000)
    data = run_file(history(metrics(1), 1), long, history(metrics(2), 2))
    reader, found = wandb_file.reader(), []
    for place in range(0, len(data), 1013):
        found += reader.feed(data[place : place + 1013])
    assert [step for step, _ in short(found)] == [1, 2]
    assert reader.damaged == 0


def test_a_damaged_wandb_record_hides_no_other() -> None:
    data = bytearray(run_file(*(history(metrics(step), step) for step in (1, 2, 4))))
    data[data.index(b"actor/pg_loss", len(data) // 3)] ^= 1
    reader = wandb_file.reader()
    assert [step for step, _ in short(reader.feed(bytes(data)))] == [1, 4]
    assert reader.damaged == 1


def test_the_trainers_own_step_goes_before_the_trackers_count_of_calls() -> None:
    values = {"_step": 17, "train/global_step": 5, "train/loss": 0.1, "train/grad_norm": 0.2}
    reader = wandb_file.reader()
    assert [step for step, _ in short(reader.feed(run_file(history(values, 17))))] == [5]
