"""A dashboard with sign-in, asked over HTTP and over its websocket, as a browser and as an attacker would."""

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value, generate_xsrf_token_string
from websockets.sync.client import connect

from tests.browser.conftest import Server
from tests.ports import free_port
from unifiednn_core.base.paths import Home

COOKIE, XSRF = "_streamlit_user", "_streamlit_xsrf"
SECRET = "known to this test and to its server alone, 64 characters or so"
PATIENCE_S, MOST_FRAMES = 60.0, 10_000


@dataclass
class SignedHouse:
    """The server; whoever knows `SECRET` can make cookies as it makes them itself."""

    server: Server

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def cookie(self, person: str | None, *, secret: str = SECRET, signed_as: str = COOKIE, **claims: Any) -> str:
        """Value of the cookie of somebody who has signed in, with these claims changed."""
        said = {"origin": self.origin, "is_logged_in": True, "iat": int(time.time()), "email": person, "name": person}
        return create_signed_value(secret, signed_as, json.dumps(said | claims)).decode()

    def ask(
        self, method: str, path: str, cookie: str | None = None, body: str | bytes | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and content of an answer; `_` in the name of a header stands for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            sent["Cookie"] = f"{COOKIE}={cookie}"
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def visit(
        self, page: str, cookie: str | None, session: str = "", press: Sequence[str] = (), **headers: str
    ) -> "Visit":
        """Open a page over the websocket, as the browser does, press buttons, and read until its script has ended.

        Raises `websockets.exceptions.InvalidStatus` if the websocket is refused.
        """
        token = generate_xsrf_token_string()
        cookies = f"{XSRF}={token}" + ("" if cookie is None else f"; {COOKIE}={cookie}")
        sent = {"Origin": self.origin, "Cookie": cookies} | {n.replace("_", "-"): v for n, v in headers.items()}
        path, _, query = page.partition("?")
        with connect(
            f"ws://{self.host}/_stcore/stream",
            origin=None,
            additional_headers=sent,
            open_timeout=PATIENCE_S,
            subprotocols=["streamlit", token, *([session] if session else [])],
            max_size=None,
            compression=None,
        ) as socket:
            asked = BackMsg()
            asked.rerun_script.page_name = path
            asked.rerun_script.query_string = query
            for button in press:
                asked.rerun_script.widget_states.widgets.add(id=button, trigger_value=True)
            socket.send(asked.SerializeToString())
            told, given = [], ""
            for _ in range(MOST_FRAMES):
                frame = socket.recv(timeout=PATIENCE_S)
                message = ForwardMsg.FromString(frame if isinstance(frame, bytes) else frame.encode())
                told.append(frame if isinstance(frame, bytes) else frame.encode())
                given = message.new_session.initialize.session_id or given
                # The first script only finds out that the page has to go through the router.
                if message.WhichOneof("type") == "script_finished" and message.script_finished == 0:
                    return Visit(b"".join(told), given)
        raise AssertionError(f"the script of {page} did not end within {MOST_FRAMES} frames")


@dataclass(frozen=True)
class Visit:
    """All that a websocket was told, and the id of its session."""

    told: bytes
    session: str


@contextmanager
def signed_house(home: Home, roles: Mapping[str, str], *, forked: bool = False) -> Iterator[SignedHouse]:
    """Serve a home with sign-in; `roles` are those of people."""
    server = Server(home, free_port(), forked=forked)
    secrets = home.root / "secrets.toml"
    server.options = ("--secrets.files", str(secrets))
    secrets.write_text(
        f"""
        [auth]
        redirect_uri = "{server.url}/oauth2callback"
        cookie_secret = "{SECRET}"
        client_id = "unifiednn"
        client_secret = "of-a-test"
        server_metadata_url = "http://127.0.0.1:9/nobody-is-there"
        [access.roles]
        {os.linesep.join(f'"{group}" = "{role}"' for group, role in roles.items())}
        """
    )
    server.start()
    try:
        yield SignedHouse(server)
    finally:
        server.kill()
