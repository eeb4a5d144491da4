"""Sends one signed JSON document to an address outside, and only to addresses that are allowed.

A public address is allowed by HTTPS. An address of a private network, of this machine or of a cloud's metadata is
allowed only if the person who runs the server names its host in `UNIFIEDNN_WEBHOOK_HOSTS`: an admin who signs in over
the network could otherwise reach what only this machine can. Names are resolved once, and the connection goes to that
very address. Redirects are not followed, proxies of the environment not used.
"""

import base64
import binascii
import hashlib
import hmac
import http.client
import ipaddress
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from unifiednn_core.base.errors import BadInput, UnifiedNNError

HOSTS_VARIABLE = "UNIFIEDNN_WEBHOOK_HOSTS"
SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
SILENT_S, LASTS_S = 10.0, 20.0
"""Longest silence of a receiver, and longest time of a delivery."""
LONGEST_URL = 2000
PORTS = {"http": 80, "https": 443}
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052


class Undelivered(UnifiedNNError):
    """A receiver did not take a document; the message says why, without the address."""


def allowed_hosts() -> frozenset[str]:
    """Hosts that may have private addresses: names or addresses, separated by commas."""
    return frozenset(name.strip().lower() for name in os.environ.get(HOSTS_VARIABLE, "").split(",") if name.strip())


def require_allowed(url: str) -> None:
    """Raise `BadInput` for an address to which nothing is sent."""
    try:
        _addresses_of(_split(url))
    except Undelivered as error:
        message, _, remedy = str(error).partition(". ")
        raise BadInput.of("Webhook", "url", f"{message.rstrip('.')}.", remedy or "Correct the address.") from None


def new_secret() -> str:
    """A secret for signatures, in the form of Standard Webhooks."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, at_s: int, body: bytes) -> str:
    """Signature of a document as Standard Webhooks define it: HMAC-SHA256 over id, time and body."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = secret.encode()
    digest = hmac.new(key, f"{message_id}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def deliver(url: str, secret: str, message_id: str, at_s: float, body: bytes) -> None:
    """Send a JSON document; raises `Undelivered` unless the receiver answers 2xx within `LASTS_S`."""
    whole = int(at_s)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "UnifiedNN",
        "webhook-id": message_id,
        "webhook-timestamp": str(whole),
        "webhook-signature": signature(secret, message_id, whole, body),
    }
    try:
        status = _post(url, headers, body)
    except (OSError, http.client.HTTPException) as error:
        raise Undelivered(f"No answer: {getattr(error, 'strerror', None) or type(error).__name__}.") from None
    if not 200 <= status < 300:
        raise Undelivered(f"It answered {status}{'; redirects are not followed' if 300 <= status < 400 else ''}.")


def _post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    asked = _split(url)
    host, port = asked.hostname or "", asked.port or PORTS[asked.scheme]
    plain = socket.create_connection((_addresses_of(asked)[0], port), SILENT_S)
    late = threading.Event()
    with plain, plain.dup() as same:  # TLS takes `plain` over; `same` is the connection also then
        end = threading.Timer(LASTS_S, _cut, [same, late])  # a receiver may send a byte now and then for ever
        end.daemon = True
        end.start()
        try:
            channel = plain
            if asked.scheme == "https":
                channel = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
            with channel:
                connection = http.client.HTTPConnection(host, port)
                connection.sock = channel  # already connected: the name is not looked up again
                path = (asked.path or "/") + (f"?{asked.query}" if asked.query else "")
                connection.request("POST", path, body, {"Host": asked.netloc.rpartition("@")[2], **headers})
                status = connection.getresponse().status
                if late.is_set():  # an answer that was cut off looks like a short one
                    raise TimeoutError
                return status
        finally:
            end.cancel()


def _cut(connection: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _split(url: str) -> SplitResult:
    try:
        asked = urlsplit(url)
        port = asked.port
    except ValueError:
        raise Undelivered("This is no address. Give one such as https://hooks.example.org/unifiednn.") from None
    bad = len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url
    if bad or asked.scheme not in PORTS or not asked.hostname or port == 0 or asked.username is not None:
        raise Undelivered("This is no address. Give one such as https://hooks.example.org/unifiednn.")
    return asked


def _addresses_of(asked: SplitResult) -> list[str]:
    """Addresses of a host, all of them allowed."""
    host = (asked.hostname or "").lower()
    try:
        found = socket.getaddrinfo(host, asked.port or PORTS[asked.scheme], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Undelivered("The name of its host has no address. Correct the address.") from None
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    if host in allowed_hosts():
        return addresses
    if not all(_is_public(address) for address in addresses):
        remedy = f"Whoever runs the server can name it in {HOSTS_VARIABLE}."
        raise Undelivered(f"Its host is in a private network, or is this machine. {remedy}")
    if asked.scheme != "https":
        raise Undelivered(f"A public address takes HTTPS alone. Give https://, or name its host in {HOSTS_VARIABLE}.")
    return addresses


def _is_public(address: str) -> bool:
    known: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address)
    if isinstance(known, ipaddress.IPv6Address):  # several forms hold an address of IPv4
        translated = ipaddress.IPv4Address(int(known) % 2**32) if known in _TRANSLATED else None
        known = known.ipv4_mapped or known.sixtofour or translated or known
    return known.is_global and not known.is_multicast
