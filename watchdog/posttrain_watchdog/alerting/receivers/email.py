"""Mail by SMTP. TLS unless it is told otherwise; the server's certificate is checked.

A mail is sent beside the event loop, because smtplib blocks; the attempt is one, with a timeout.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from datetime import datetime, timezone
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from typing import Literal

from posttrain_watchdog.alerting import wording
from posttrain_watchdog.alerting.notification import Notification, fingerprint
from posttrain_watchdog.alerting.transport import Outcome, Receiver, ReceiverError, ReceiverSettings

OPTIONS = frozenset({"host", "port", "security", "from", "to", "username"})
SECRETS = ("password",)
URL_IS_SECRET = False
_SECURITY = ("starttls", "tls", "none")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def compose(n: Notification, settings: ReceiverSettings, now: float) -> EmailMessage:
    """The mail; text only, because an alert's words are data."""
    message = EmailMessage()
    message["Subject"] = wording.headline(n, settings.language).replace("\n", " ").replace("\r", " ")
    message["From"] = str(settings.options["from"])
    message["To"] = ", ".join(_recipients(settings))
    message["Date"] = format_datetime(datetime.fromtimestamp(now, timezone.utc))
    # mails of one group make one thread
    message["References"] = f"<{fingerprint(n.group)}@posttrain-watchdog>"
    message["Auto-Submitted"] = "auto-generated"
    text = wording.text(n, settings.language)
    if n.external_url:
        text += f"\n\n{n.external_url}"
    message.set_content(text)
    return message


def _recipients(settings: ReceiverSettings) -> list[str]:
    given = settings.options["to"]
    return [str(t) for t in given] if isinstance(given, list) else [t.strip() for t in str(given).split(",")]


class EmailReceiver:
    """One SMTP server and its recipients."""

    def __init__(self, settings: ReceiverSettings) -> None:
        options = settings.options
        for needed in ("host", "from", "to"):
            if not options.get(needed):
                raise ReceiverError(f"receiver {settings.name!r}: expected option {needed!r}")
        security = options.get("security", "starttls")
        if security not in _SECURITY:
            raise ReceiverError(f"receiver {settings.name!r}: security: expected one of {', '.join(_SECURITY)}")
        if options.get("username") and security == "none":
            raise ReceiverError(f"receiver {settings.name!r}: a password is not sent without TLS")
        try:
            for address in (str(options["from"]), *_recipients(settings)):
                Address(addr_spec=parseaddr(address)[1])
            self._port = int(options.get("port", _PORTS[security]))
        except (ValueError, IndexError) as error:
            raise ReceiverError(f"receiver {settings.name!r}: {error}") from None
        self.name = settings.name
        self._settings = settings
        self._security: Literal["starttls", "tls", "none"] = security

    async def send(self, notification: Notification, now: float) -> Outcome:
        message = compose(notification, self._settings, now)
        return await asyncio.to_thread(self._deliver, message)

    def _deliver(self, message: EmailMessage) -> Outcome:
        host, timeout = str(self._settings.options["host"]), self._settings.timeout
        try:
            if self._security == "tls":
                server: smtplib.SMTP = smtplib.SMTP_SSL(
                    host, self._port, timeout=timeout, context=ssl.create_default_context()
                )
            else:
                server = smtplib.SMTP(host, self._port, timeout=timeout)
            with server:
                if self._security == "starttls":
                    server.starttls(context=ssl.create_default_context())
                user = self._settings.options.get("username")
                if user:
                    server.login(str(user), self._settings.secrets.get("password", ""))
                refused = server.send_message(message)
        except smtplib.SMTPAuthenticationError:
            return Outcome(False, False, "the server refused the login")
        except smtplib.SMTPResponseException as error:
            return Outcome(False, 400 <= error.smtp_code < 500, f"SMTP {error.smtp_code}")
        except smtplib.SMTPRecipientsRefused as error:
            temporary = all(400 <= code < 500 for code, _ in error.recipients.values())
            return Outcome(False, temporary, "every recipient was refused")
        except (OSError, smtplib.SMTPException) as error:
            return Outcome(False, True, type(error).__name__)
        return Outcome(True, False, f"refused for {len(refused)} recipients" if refused else "")

    async def close(self) -> None:
        """Holds nothing open."""


def build(settings: ReceiverSettings) -> Receiver:
    return EmailReceiver(settings)
