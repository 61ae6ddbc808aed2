"""Direct receivers: at least once, over restarts, past dead receivers, one root cause instead of its symptoms."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from conftest import ROOT

from posttrain_watchdog.alerting.alertmanager import Alertmanager
from posttrain_watchdog.alerting.circuit import Circuit
from posttrain_watchdog.alerting.delivery import Delivery, from_config, routes
from posttrain_watchdog.alerting.grouping import Route
from posttrain_watchdog.alerting.inhibition import InhibitionError, Inhibitor, parse_matchers
from posttrain_watchdog.alerting.notification import Notice, Notification, fingerprint
from posttrain_watchdog.alerting.outbox import LONGEST_RETRY, Outbox, pause
from posttrain_watchdog.alerting.receivers import build, email, kinds
from posttrain_watchdog.alerting.receivers.email import compose
from posttrain_watchdog.alerting.transport import HttpReceiver, Outcome, ReceiverError, ReceiverSettings, Request
from posttrain_watchdog.config import AlertingConfig, ConfigError, ReceiverConfig
from posttrain_watchdog.config import parse as parse_config
from posttrain_watchdog.model import Alert
from posttrain_watchdog.state import State, StateError

OK = Outcome(True, False)
LATER = Outcome(False, True, "HTTP 503")


def alert(name: str = "A", *, at: float = 0.0, resolved: float | None = None, **labels: str) -> Alert:
    given = {"alertname": name, "severity": "critical", "run": "r", **labels}
    state = "firing" if resolved is None else "inactive"
    return Alert(name, given, {"summary": f"{name} is bad"}, state, at, 1.0, fired_at=at, resolved_at=resolved)  # type: ignore[arg-type]


class Pager:
    """A receiver in memory."""

    def __init__(self, name: str = "pager", answers: Sequence[Outcome | Exception] = ()) -> None:
        self.name = name
        self.answers = list(answers)
        self.got: list[Notification] = []

    async def send(self, notification: Notification, now: float) -> Outcome:
        answer = self.answers.pop(0) if self.answers else OK
        if isinstance(answer, Exception):
            raise answer
        if answer.ok:
            self.got.append(notification)
        return answer

    async def close(self) -> None: ...

    @property
    def said(self) -> list[list[str]]:
        return [[f"{x.name}{'' if x.firing else ' ok'}" for x in n.notices] for n in self.got]


class Desk:
    """A delivery that is ticked by hand."""

    def __init__(self, state: State, *pagers: Pager, inhibitor: Inhibitor | None = None, **route: Any) -> None:
        routes = [(Route(p.name, **{"wait": 0.0, "interval": 0.0, **route}), p) for p in pagers]
        self.delivery = Delivery(state, receivers=routes, inhibitor=inhibitor)

    def at(self, now: float, *alerts: Alert) -> list[str]:
        self.delivery.take(alerts, now)
        return [f"{a.receiver}: {a.outcome.ok}" for a in asyncio.run(self.delivery.flush(now))]


def test_an_alert_is_told_once_when_it_fires_and_once_when_it_resolves() -> None:
    pager = Pager()
    desk = Desk(State(), pager)
    desk.at(0)
    for now in (15.0, 30.0, 45.0):
        desk.at(now, alert(at=15))
    desk.at(60, alert(at=15, resolved=60))
    desk.at(75, alert(at=15, resolved=60))
    assert pager.said == [["A"], ["A ok"]]
    assert pager.got[1].status == "resolved"
    assert pager.got[1].notices[0].ends_at == 60


def test_what_goes_on_is_said_again_after_the_repeat_interval() -> None:
    pager = Pager()
    desk = Desk(State(), pager, repeat=100.0)
    for now in range(0, 250, 10):
        desk.at(now, alert())
    assert pager.said == [["A"]] * 3


def test_a_group_waits_for_the_rest_of_the_story() -> None:
    pager = Pager()
    desk = Desk(State(), pager, wait=10.0, interval=60.0)
    desk.at(0, alert("A"))
    desk.at(5, alert("A"), alert("B"))
    desk.at(10, alert("A"), alert("B"))
    desk.at(20, alert("A"), alert("B"), alert("C"))
    assert pager.said == [["A", "B"]]
    desk.at(70, alert("A"), alert("B"), alert("C"))
    assert pager.said[1:] == [["A", "B", "C"]]
    desk.at(140, alert("X", run="other"))
    assert len(pager.said) == 2, "another run waits on its own"


def test_a_blip_within_the_wait_is_never_told() -> None:
    pager = Pager()
    desk = Desk(State(), pager, wait=30.0)
    desk.at(0, alert())
    desk.at(15, alert(resolved=15))
    desk.at(60, alert(resolved=15))
    assert pager.said == []


def test_severities_choose_the_receiver() -> None:
    pager, chat = Pager("pager"), Pager("chat")
    delivery = Delivery(
        State(),
        receivers=[(Route("pager", frozenset({"critical"}), wait=0), pager), (Route("chat", wait=0), chat)],
    )
    delivery.take([alert("A"), alert("B", severity="info"), alert("C", severity="")], 0)
    asyncio.run(delivery.flush(0))
    assert pager.said == [["A", "C"]]
    assert chat.said == [["A", "B", "C"]]


def test_nothing_is_lost_when_the_process_dies_before_it_could_tell(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    desk = Desk(state, Pager(answers=[LATER]))
    desk.at(0, alert())
    assert desk.delivery.outbox_length == 1
    state.close()

    state = State(tmp_path / "s")
    pager = Pager()
    desk = Desk(state, pager)
    desk.at(10, alert())
    assert pager.said == [["A"]]
    assert desk.delivery.outbox_length == 0
    state.close()


def test_a_restart_repeats_nothing_and_resolves_what_was_told(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    Desk(state, Pager()).at(0, alert())
    state.close()
    state = State(tmp_path / "s")
    pager = Pager()
    desk = Desk(state, pager)
    desk.at(10, alert())
    assert pager.said == []
    desk.at(20, alert(resolved=20))
    assert pager.said == [["A ok"]]
    state.close()


def test_what_resolved_before_it_could_be_told_is_told_as_one() -> None:
    pager = Pager(answers=[LATER])
    desk = Desk(State(), pager)
    desk.at(0, alert("A"), alert("B"))
    desk.at(1, alert("A"), alert("B", resolved=1))
    desk.at(2, alert("A"), alert("B", resolved=1), alert("C", at=2))
    assert pager.said == []
    desk.at(20, alert("A"), alert("B", resolved=1), alert("C", at=2))
    assert pager.said == [["A", "C", "B ok"]]


def test_a_dead_receiver_costs_the_others_nothing_and_is_asked_ever_more_rarely() -> None:
    dead, alive = Pager("dead", [LATER] * 1000), Pager("alive")
    desk = Desk(State(), dead, alive)
    tries = [now for now in range(0, 3600, 5) if any(x.startswith("dead") for x in desk.at(float(now), alert()))]
    assert alive.said == [["A"]]
    assert 8 <= len(tries) <= 20, tries
    assert tries[-1] - tries[-2] > 200


def test_a_receiver_that_raises_is_one_that_failed() -> None:
    broken, alive = Pager("broken", [ZeroDivisionError()]), Pager("alive")
    desk = Desk(State(), broken, alive)
    assert sorted(desk.at(0, alert())) == ["alive: True", "broken: False"]
    desk.at(30, alert())
    assert broken.said == [["A"]]


def test_a_refusal_for_good_is_dropped_and_counted() -> None:
    pager = Pager(answers=[Outcome(False, False, "HTTP 400")])
    desk = Desk(State(), pager)
    desk.at(0, alert())
    assert (desk.delivery.outbox_length, desk.delivery.dropped) == (0, 1)


def test_a_receiver_that_asks_for_patience_gets_it() -> None:
    pager = Pager(answers=[Outcome(False, True, "HTTP 429", 300.0)])
    desk = Desk(State(), pager)
    desk.at(0, alert())
    desk.at(299, alert())
    assert pager.said == []
    desk.at(301, alert())
    assert pager.said == [["A"]]


def test_the_outbox_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain_watchdog.alerting.outbox.MOST_MESSAGES", 3)
    box = Outbox(State())
    for i in range(5):
        box.put(str(i), Notification("r", {"i": str(i)}, (Notice({}, {}, 0.0),)), float(i))
    assert (len(box), box.dropped) == (3, 2)
    assert [m.key for m in box.due("r", 10, 10)] == ["2", "3", "4"]
    assert box.due("r", 200_000, 10) == []


def test_a_newer_message_is_not_taken_for_delivered() -> None:
    box = Outbox(State())
    box.put("k", Notification("r", {}, (Notice({"alertname": "A"}, {}, 0.0),)), 0)
    (message,) = box.due("r", 0, 10)
    box.put("k", Notification("r", {}, (Notice({"alertname": "B"}, {}, 0.0),)), 1)
    box.delivered(message)
    assert [m.notification.notices[0].name for m in box.due("r", 1, 10)] == ["B"]


def test_a_record_that_cannot_be_read_is_dropped() -> None:
    state = State()
    box = Outbox(state)
    with state.transaction() as connection:
        connection.execute("INSERT INTO outbox (receiver, key, body, created, due) VALUES ('r', 'k', x'00', 0, 0)")
    assert box.due("r", 0, 10) == []
    assert box.dropped == 1


class FullDisk(State):
    full = False

    def transaction(self) -> Any:
        if self.full:
            raise StateError("disk full")
        return super().transaction()


def test_a_full_disk_is_no_reason_to_be_silent(tmp_path: Path) -> None:
    state = FullDisk(tmp_path / "s")
    pager = Pager(answers=[LATER])
    desk = Desk(state, pager)
    desk.at(0, alert("A"))
    state.full = True
    desk.at(10, alert("A"), alert("B", at=10))
    assert desk.delivery.degraded == "disk full"
    desk.at(30, alert("A"), alert("B", at=10))
    desk.at(31, alert("A"), alert("B", at=10))
    assert pager.said[-1] == ["A", "B"]
    told = len(pager.said)
    state.full = False
    desk.at(100, alert("A"), alert("B", at=10))
    assert desk.delivery.degraded == ""
    assert len(pager.said) == told
    again = Pager()
    Desk(state, again).at(200, alert("A"), alert("B", at=10))
    assert again.said == []
    state.close()


def test_pauses_double_up_to_a_bound() -> None:
    waits = [pause("x", n) for n in range(1, 30)]
    assert waits[0] <= 6
    assert max(waits) <= 1.2 * LONGEST_RETRY
    circuit = Circuit()
    for _ in range(30):
        circuit.failed(0.0)
    assert circuit.open_until == 300.0
    assert circuit.at_once == 1


# --- inhibition

RULES = """
inhibit_rules:
  - source_matchers: ['cause=~"stale_weights|non_finite"']
    target_matchers: [alertname="KL", 'severity!="info"']
    equal: [run, instance]
  - source_match: {alertname: Both}
    target_match_re: {alertname: Both|Other}
"""


@pytest.mark.parametrize(
    ("firing", "muted"),
    [
        ([{"cause": "stale_weights", "run": "a"}, {"alertname": "KL", "run": "a"}], {1: 0}),
        ([{"cause": "stale_weights", "run": "a"}, {"alertname": "KL", "run": "b"}], {}),
        ([{"cause": "stale_weights", "run": "a"}, {"alertname": "KL", "run": "a", "severity": "info"}], {}),
        ([{"cause": "stale_weights_not"}, {"alertname": "KL"}], {}),
        ([{"cause": "non_finite"}, {"alertname": "KL"}], {1: 0}),
        ([{"alertname": "Both", "x": "1"}, {"alertname": "Both", "x": "2"}], {}),
        ([{"alertname": "Both"}, {"alertname": "Other"}], {1: 0}),
    ],
)
def test_symptoms_are_muted_as_alertmanager_mutes_them(firing: list[dict[str, str]], muted: dict[int, int]) -> None:
    assert Inhibitor.parse(RULES).muted(firing) == muted


def test_the_symptom_is_kept_silent_and_the_cause_says_so() -> None:
    pager = Pager()
    desk = Desk(State(), pager, inhibitor=Inhibitor.parse(RULES))
    cause, symptom = alert("Stale", cause="stale_weights"), alert("KL")
    desk.at(0, cause, symptom)
    assert pager.said == [["Stale"]]
    assert (pager.got[0].root_causes, pager.got[0].silent) == (("Stale",), 1)
    desk.at(10, alert("Stale", cause="stale_weights", resolved=10), symptom)
    assert pager.said[1:] == [["KL", "Stale ok"]], "a symptom that outlives its cause is told"


def test_a_symptom_that_was_told_before_its_cause_is_still_resolved() -> None:
    pager = Pager()
    desk = Desk(State(), pager, inhibitor=Inhibitor.parse(RULES))
    desk.at(0, alert("KL"))
    cause = alert("Stale", at=10, cause="stale_weights")
    desk.at(10, alert("KL"), cause)
    desk.at(20, alert("KL", resolved=20), cause)
    assert pager.said == [["KL"], ["Stale"], ["Stale", "KL ok"]]


def test_the_shipped_inhibition_is_read() -> None:
    shipped = Inhibitor.load(ROOT / "rules" / "alertmanager" / "inhibit.yml")
    assert len(shipped.rules) > 5
    firing = [
        {"alertname": "LogprobsModeWrong", "cause": "logprobs_mode_raw", "run": "a"},
        {"alertname": "ImportanceRatioOutOfBand", "run": "a"},
        {"alertname": "ImportanceRatioOutOfBand", "run": "b"},
    ]
    assert shipped.muted(firing) == {1: 0}


@pytest.mark.parametrize(
    "text",
    [
        "inhibit_rules: 5",
        "inhibit_rules: [{}]",
        "inhibit_rules: [5]",
        "inhibit_rules: [{source_matchers: ['a=~\"(\"'], target_matchers: [b=c]}]",
        "inhibit_rules: [{source_matchers: [nonsense], target_matchers: [b=c]}]",
        "inhibit_rules: [{sources: [a=b]}]",
        "inhibit_rules: [{source_matchers: [a=b], target_matchers: [b=c], equal: 5}]",
        "[" * 5000,
    ],
)
def test_inhibition_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(InhibitionError):
        Inhibitor.parse(text)


def test_matchers_may_be_quoted_or_not_and_hold_commas() -> None:
    found = [(m.name, m.operator, m.value) for m in parse_matchers('{a="x,\\"y", b=~c|d,e!=f}')]
    assert found == [("a", "=", 'x,"y'), ("b", "=~", "c|d"), ("e", "!=", "f")]


# --- receivers

HOSTILE = '<!channel> @all <at user_id="all"></at> [x](http://evil) *b* \x1b[31m\u202eabc\r\nBcc: x@y {{ .Labels }}'


def notification(**more: Any) -> Notification:
    firing = Notice(
        {"alertname": "LogprobsModeWrong", "severity": "critical", "run": "a", "note": HOSTILE},
        {"summary": f"Wrong mode {HOSTILE}", "description": "ratio 1.3", "first_check": "mode", "runbook": "docs/g.md"},
        1_700_000_000.0,
    )
    ended = Notice({"alertname": "KL", "run": "a"}, {"summary": "KL high"}, 1_700_000_000.0, 1_700_000_060.0)
    return Notification("chat", {"run": "a"}, (firing, ended), "http://w/", **more)


def sent(
    kind: str, answer: Callable[[httpx.Request], httpx.Response], **config: Any
) -> tuple[Outcome, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(request)

    options = config.pop("options", {})
    environ = {"URL": "https://host.invalid/hook?key=SECRET", "S": "s3cret"}
    given = {"name": "chat", "kind": kind, "url_env": "URL", "options": options, **config}
    receiver = build(ReceiverConfig(**given), environ=environ, transport=httpx.MockTransport(handler))

    async def once() -> Outcome:
        outcome = await receiver.send(notification(silent=2, root_causes=("LogprobsModeWrong",)), 1_700_000_100.0)
        await receiver.close()
        return outcome

    return asyncio.run(once()), seen


def test_every_kind_has_its_file() -> None:
    assert kinds() == ["dingtalk", "email", "feishu", "pagerduty", "slack", "webhook", "wecom"]


def test_the_webhook_speaks_as_alertmanager_does() -> None:
    outcome, (request,) = sent("webhook", lambda r: httpx.Response(200), options={"bearer_token_env": "S"})
    assert outcome.ok
    body = orjson.loads(request.content)
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert list(body) == [
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
        "commonAnnotations", "externalURL", "alerts",
    ]  # fmt: skip
    assert (body["status"], body["groupKey"], body["commonLabels"]) == ("firing", '{}:{run="a"}', {"run": "a"})
    first, second = body["alerts"]
    assert (first["status"], first["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
    assert (second["status"], second["endsAt"]) == ("resolved", "2023-11-14T22:14:20.000Z")
    assert fingerprint({}) == "cbf29ce484222325", "the offset of FNV-1a; test_real_alertmanager.py has the rest"


def test_slack_is_told_without_calling_anybody() -> None:
    outcome, (request,) = sent("slack", lambda r: httpx.Response(200, text="ok"))
    assert outcome.ok
    body = orjson.loads(request.content)
    assert body["text"].startswith("[FIRING:1] LogprobsModeWrong (run=a)")
    assert [a.get("color") for a in body["attachments"][:2]] == ["#d32f2f", "#388e3c"]
    assert "<!channel>" not in request.content.decode()
    assert "&lt;!channel&gt;" in body["attachments"][0]["title"]
    assert "2 further alerts follow from LogprobsModeWrong" in body["attachments"][2]["text"]


def test_feishu_is_signed_and_its_codes_are_understood() -> None:
    outcome, (request,) = sent(
        "feishu",
        lambda r: httpx.Response(200, json={"code": 19021, "msg": "sign match fail"}),
        options={"secret_env": "S"},
    )
    assert (outcome.ok, outcome.retry) == (False, False)
    body = orjson.loads(request.content)
    expected = base64.b64encode(hmac.new(b"1700000100\ns3cret", b"", hashlib.sha256).digest()).decode()
    assert (body["timestamp"], body["sign"]) == ("1700000100", expected)
    assert "<at" not in body["card"]["elements"][0]["text"]["content"]
    assert body["card"]["header"]["template"] == "red"
    outcome, _ = sent("feishu", lambda r: httpx.Response(200, json={"code": 9499}))
    assert outcome.retry
    assert sent("feishu", lambda r: httpx.Response(200, json={"StatusCode": 0, "code": 0}))[0].ok


def test_dingtalk_is_signed_in_the_url() -> None:
    outcome, (request,) = sent(
        "dingtalk", lambda r: httpx.Response(200, json={"errcode": 0}), options={"secret_env": "S", "keyword": "train"}
    )
    assert outcome.ok
    expected = base64.b64encode(hmac.new(b"s3cret", b"1700000100000\ns3cret", hashlib.sha256).digest()).decode()
    assert request.url.params["sign"] == expected
    assert request.url.params["timestamp"] == "1700000100000"
    body = orjson.loads(request.content)
    assert "@all" not in body["markdown"]["text"]
    assert body["markdown"]["title"].startswith("train [FIRING:1]")
    assert sent("dingtalk", lambda r: httpx.Response(200, json={"errcode": 130101}))[0].retry
    assert not sent("dingtalk", lambda r: httpx.Response(200, json={"errcode": 310000}))[0].retry


def test_wecom_gets_no_more_than_it_takes() -> None:
    outcome, (request,) = sent("wecom", lambda r: httpx.Response(200, json={"errcode": 0}))
    assert outcome.ok
    content = orjson.loads(request.content)["markdown"]["content"]
    assert len(content.encode()) <= 4096
    assert "<" not in content


def test_pagerduty_opens_and_resolves_one_incident_an_alert() -> None:
    outcome, requests = sent("pagerduty", lambda r: httpx.Response(202), url_env="", options={"routing_key_env": "S"})
    assert outcome.ok
    assert {str(r.url) for r in requests} == {"https://events.pagerduty.com/v2/enqueue"}
    first, second = (orjson.loads(r.content) for r in requests)
    assert (first["event_action"], first["payload"]["severity"], first["routing_key"]) == (
        "trigger",
        "critical",
        "s3cret",
    )
    assert second["event_action"] == "resolve"
    assert first["dedup_key"] != second["dedup_key"]


@pytest.mark.parametrize("kind", ["webhook", "slack", "wecom"])
@pytest.mark.parametrize(
    ("status", "retry"), [(500, True), (503, True), (429, True), (408, True), (400, False), (404, False), (302, False)]
)
def test_a_status_says_whether_to_try_again(kind: str, status: int, retry: bool) -> None:
    outcome, requests = sent(
        kind, lambda r: httpx.Response(status, headers={"Location": "http://x", "Retry-After": "7"})
    )
    assert (outcome.ok, outcome.retry, outcome.retry_after) == (False, retry, 7.0)
    assert len(requests) == 1, "a sender never loops, nor follows"


def test_no_secret_gets_into_the_text_of_a_failure() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"cannot reach {request.url}")

    outcome, _ = sent("slack", fail)
    assert (outcome.ok, outcome.retry, outcome.detail) == (False, True, "ConnectError")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"kind": "carrier-pigeon"}, "kind: expected one of dingtalk, email"),
        ({"kind": "__init__"}, "kind: expected one of"),
        ({"kind": "slack", "url": "https://hooks/x"}, "its url is a secret"),
        ({"kind": "slack"}, "expected a URL"),
        ({"kind": "webhook", "url": "file:///etc/passwd"}, "expected a URL"),
        ({"kind": "webhook", "url": "http://x", "options": {"colour": 1}}, "no such option 'colour'"),
        ({"kind": "pagerduty"}, "expected routing_key_file"),
        ({"kind": "pagerduty", "options": {"routing_key": "k"}}, "routing_key is a secret"),
        ({"kind": "slack", "url_env": "NOWHERE"}, "'NOWHERE' is not in the environment"),
        ({"kind": "slack", "url_file": "/nowhere/x"}, "No such file"),
        ({"kind": "email", "options": {"host": "h", "from": "a@b"}}, "expected option 'to'"),
        ({"kind": "email", "options": {"host": "h", "from": "a@b", "to": "no address"}}, "chat"),
        (
            {
                "kind": "email",
                "options": {"host": "h", "from": "a@b", "to": "c@d", "security": "none", "username": "u"},
            },
            "not sent without TLS",
        ),
        ({"kind": "webhook", "url": "http://x", "options": {"group_by": "run"}}, "group_by: expected a list"),
        ({"kind": "webhook", "url": "http://x", "options": {"group_wait": "soon"}}, "expected a duration"),
    ],
)
def test_a_receiver_that_is_configured_wrongly_is_refused(config: dict[str, Any], expected: str) -> None:
    with pytest.raises(ReceiverError, match=expected):
        routes(AlertingConfig(receivers=[ReceiverConfig(**{"name": "chat", **config})]), environ={})


def test_a_mail_has_its_headers_to_itself() -> None:
    options = {"from": "Watchdog <w@example.org>", "to": ["a@example.org", "b@example.org"], "host": "h"}
    mail = compose(notification(), ReceiverSettings("m", options=options, language="zh"), 1_700_000_100.0)
    assert mail["Bcc"] is None
    assert mail["To"] == "a@example.org, b@example.org"
    assert str(mail["Subject"]).startswith("[告警:1] LogprobsModeWrong")
    assert "Bcc: x@y" in mail.get_content(), "what a label says stays in the text"
    assert "\x1b" not in mail.get_content()


def test_a_mail_server_that_is_not_there_is_asked_again_later() -> None:
    receiver = email.build(
        ReceiverSettings("m", options={"host": "127.0.0.1", "port": 1, "from": "a@b", "to": "c@d"}, timeout=2.0)
    )
    outcome = asyncio.run(receiver.send(notification(), 0.0))
    assert (outcome.ok, outcome.retry) == (False, True)


# --- all of it, from a configuration


def test_a_configuration_becomes_receivers(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://hooks.invalid/x\n")
    config = parse_config(
        f"""
        alerting:
          language: zh
          alertmanagers: [{{url: "http://127.0.0.1:9093"}}]
          receivers:
            - {{name: chat, kind: slack, url_file: {tmp_path / "url"}, options: {{group_by: [run], group_wait: 5s}}}}
            - {{name: hook, kind: webhook, url: "http://127.0.0.1:1/", severities: [critical]}}
        """
    )
    delivery = from_config(config, State(), inhibit_rules=ROOT / "rules" / "alertmanager" / "inhibit.yml", environ={})
    assert delivery.names == ["http://127.0.0.1:9093/api/v2/alerts", "chat", "hook"]
    asyncio.run(delivery.close())


def test_an_alertmanager_is_told_again_and_again_and_of_the_end() -> None:
    got: list[list[dict[str, Any]]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        got.append(orjson.loads(request.content))
        return httpx.Response(500 if len(got) == 1 else 200)

    manager = Alertmanager("http://am", resend_delay=60.0, transport=httpx.MockTransport(handler))
    delivery = Delivery(State(), alertmanagers=[manager])

    async def play() -> None:
        for now in range(0, 200, 5):
            state = alert(resolved=150.0) if now >= 150 else alert()
            delivery.take([state], float(now))
            await delivery.flush(float(now))
        await delivery.close()

    asyncio.run(play())
    ends = [body[0]["endsAt"] for body in got]
    assert ends == [
        "1970-01-01T00:04:00.000Z",
        "1970-01-01T00:04:05.000Z",
        "1970-01-01T00:05:05.000Z",
        "1970-01-01T00:06:05.000Z",
        "1970-01-01T00:02:30.000Z",
    ]


class _Body(httpx.AsyncByteStream):
    """An answer whose end never comes."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1024
            if self.silent:
                await asyncio.Event().wait()


@pytest.mark.parametrize("silent", [True, False])
def test_an_answer_without_an_end_holds_nobody_up(silent: bool) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(503, stream=_Body(silent=silent)))
    settings = ReceiverSettings("hook", "http://h", timeout=0.2, transport=transport)
    manager = Alertmanager("http://am", timeout=0.2, transport=transport)

    async def both() -> tuple[Outcome, Outcome]:
        receiver = HttpReceiver(settings, lambda *_: [Request("http://h", b"{}")])
        return await receiver.send(Notification("hook", {}, ()), 0.0), await manager.send([alert()], 0.0)

    for outcome in asyncio.run(both()):
        assert not outcome.ok and outcome.retry
        assert ("ReadTimeout" if silent else "HTTP 503") in outcome.detail


def test_an_alertmanager_s_password_has_no_place_in_its_address() -> None:
    with pytest.raises(ConfigError, match="password_file"):
        parse_config("alerting: {alertmanagers: [{url: 'http://me:secret@am:9093'}]}")
