"""What is still to be told, on disk: at least once, bounded, one message a receiver and group.

Promises: a message is there until it was delivered, refused for good, or too old; a newer message of the same group
takes the place of an undelivered older one; a crash between delivery and its record means that it is sent again,
never that it is lost. Time is an argument. Raises StateError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import orjson

from posttrain_watchdog.alerting.notification import Notification
from posttrain_watchdog.state import State

MOST_MESSAGES = 1000
"""for one receiver; the oldest go first, and are counted"""
MAX_AGE = 24 * 3600.0
FIRST_RETRY = 5.0
LONGEST_RETRY = 600.0

_SCHEMA = (
    """CREATE TABLE outbox (
           receiver TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, created REAL NOT NULL, due REAL NOT NULL,
           attempts INTEGER NOT NULL DEFAULT 0, revision INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (receiver, key))""",
    "CREATE INDEX outbox_due ON outbox (due)",
)


@dataclass(frozen=True, slots=True)
class Message:
    """One notification on its way."""

    key: str
    notification: Notification
    attempts: int
    revision: int


def pause(name: str, attempts: int) -> float:
    """Seconds until the next attempt: doubling from 5 s to 10 min, spread by a fifth so that not all come at once."""
    base = min(FIRST_RETRY * 2.0 ** min(attempts - 1, 16), LONGEST_RETRY)
    return base * (0.8 + 0.4 * (crc32(f"{name}{attempts}".encode()) % 1000) / 1000)


class Outbox:
    """The messages of every receiver."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.dropped = 0
        """messages given up: too many, too old, or unreadable"""
        state.migrate("outbox", _SCHEMA)

    def __len__(self) -> int:
        with self.state.transaction() as connection:
            return int(connection.execute("SELECT count(*) FROM outbox").fetchone()[0])

    def put(self, key: str, notification: Notification, now: float) -> None:
        """Takes a message; what an undelivered earlier one of its group says beyond it is kept."""
        receiver = notification.receiver
        with self.state.transaction() as connection:
            row = connection.execute(
                "SELECT body FROM outbox WHERE receiver = ? AND key = ?", (receiver, key)
            ).fetchone()
            earlier = _read(row[0]) if row else None
            if earlier is not None:
                notification = notification.after(earlier)
            body = orjson.dumps(notification.as_dict())
            connection.execute(
                """INSERT INTO outbox (receiver, key, body, created, due) VALUES (?, ?, ?, ?, ?)
                   ON CONFLICT (receiver, key) DO UPDATE
                   SET body = excluded.body, created = excluded.created, revision = revision + 1""",
                (receiver, key, body, now, now),
            )
            gone = connection.execute(
                """DELETE FROM outbox WHERE receiver = ? AND key NOT IN
                   (SELECT key FROM outbox WHERE receiver = ? ORDER BY created DESC LIMIT ?)""",
                (receiver, receiver, MOST_MESSAGES),
            )
            self.dropped += gone.rowcount

    def due(self, receiver: str, now: float, most: int) -> list[Message]:
        """What this receiver should be told now, oldest first."""
        with self.state.transaction() as connection:
            old = connection.execute("DELETE FROM outbox WHERE created < ?", (now - MAX_AGE,))
            self.dropped += old.rowcount
            rows = connection.execute(
                """SELECT key, body, attempts, revision FROM outbox WHERE receiver = ? AND due <= ?
                   ORDER BY created LIMIT ?""",
                (receiver, now, most),
            ).fetchall()
            found = []
            for key, body, attempts, revision in rows:
                notification = _read(body)
                if notification is None:
                    connection.execute("DELETE FROM outbox WHERE receiver = ? AND key = ?", (receiver, key))
                    self.dropped += 1
                else:
                    found.append(Message(key, notification, attempts, revision))
        return found

    def delivered(self, message: Message) -> None:
        """Told; unless a newer one took its place meanwhile, which is still to be told."""
        with self.state.transaction() as connection:
            connection.execute(
                "DELETE FROM outbox WHERE receiver = ? AND key = ? AND revision = ?",
                (message.notification.receiver, message.key, message.revision),
            )

    def refused(self, message: Message) -> None:
        """Given up: asking again would be refused again."""
        self.delivered(message)
        self.dropped += 1

    def failed(self, message: Message, now: float, *, retry_after: float = 0.0) -> None:
        """To be tried again, later each time."""
        receiver, attempts = message.notification.receiver, message.attempts + 1
        wait = max(pause(receiver + message.key, attempts), retry_after)
        with self.state.transaction() as connection:
            connection.execute(
                "UPDATE outbox SET due = ?, attempts = ? WHERE receiver = ? AND key = ?",
                (now + wait, attempts, receiver, message.key),
            )

    def rows(self) -> list[tuple[Any, ...]]:
        """Everything, for `fill` of another outbox."""
        with self.state.transaction() as connection:
            return list(connection.execute("SELECT * FROM outbox").fetchall())

    def fill(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Holds exactly these rows from now on."""
        with self.state.transaction() as connection:
            connection.execute("DELETE FROM outbox")
            connection.executemany("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def keep_only(self, receivers: list[str]) -> None:
        """Forgets messages to receivers that are no longer configured."""
        with self.state.transaction() as connection:
            marks = ", ".join("?" * len(receivers))
            gone = connection.execute(f"DELETE FROM outbox WHERE receiver NOT IN ({marks})", receivers)  # noqa: S608
            self.dropped += gone.rowcount


def _read(body: bytes) -> Notification | None:
    try:
        data: dict[str, Any] = orjson.loads(body)
        return Notification.from_dict(data)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
