"""Without sign-in, the whole dashboard answers only the user who runs it, as `streamlit run app.py` starts it."""

import os
import socket

import pytest

from tests.browser.conftest import Server
from tests.other_user import NOBODY, ask_as, needs_root

UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: streamlit\r\n"
)
BEGIN = '{"filename": "a.pt", "size_bytes": 3}'


@pytest.mark.slow
@needs_root
def test_no_page_no_websocket_no_file_and_no_upload_is_for_another_user(server: Server) -> None:
    upload = f"Content-Type: application/json\r\nContent-Length: {len(BEGIN)}\r\n\r\n{BEGIN}"
    answers = {
        "GET / ": ("\r\n", 200),
        "GET /people ": ("\r\n", 200),
        "GET /_stcore/health ": ("\r\n", 200),
        "GET /_stcore/stream ": (f"{UPGRADE}\r\n", 101),
        "GET /static/js/any.js ": ("\r\n", 200),
        "GET /assets/plotly.min.js ": ("\r\n", 200),
        "GET /files/runs/none.json ": ("\r\n", 404),
        "POST /files/uploads ": (upload, 201),
    }
    requests = [
        (socket.AF_INET, "127.0.0.1", server.port, f"{line}HTTP/1.1\r\nHost: localhost\r\n{rest}", True)
        for line, (rest, _) in answers.items()
    ]
    assert ask_as(NOBODY, *requests) == ["HTTP/1.1 403 Forbidden"] * len(requests)
    assert list(server.home.quarantine.iterdir()) == []
    own = [int(line.split()[1]) for line in ask_as(os.geteuid(), *requests)]
    assert own == [status for _, status in answers.values()]
    assert list(server.home.quarantine.iterdir()) != []
