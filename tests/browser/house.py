"""People in browsers of their own before one dashboard with sign-in, and all that they are told."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import APIResponse, Browser, BrowserContext, Page, Playwright, Response, WebSocket, expect

from tests.browser.conftest import ARGUMENTS, CHROMIUM, Server
from tests.browser.identity import CLIENT_ID, CLIENT_SECRET, IdentityProvider
from tests.ports import free_port
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor


@dataclass
class Visitor:
    """A browser of one person; `told` is all that ever arrived in it, over HTTP and over websockets."""

    context: BrowserContext
    page: Page
    url: str
    told: list[bytes] = field(default_factory=list)

    def ask(self, method: str, path: str, *, data: Any = None, **headers: str) -> APIResponse:
        """A request as this browser sends it; `_` in a header's name stands for `-`."""
        sent = {"Origin": self.url} | {name.replace("_", "-"): value for name, value in headers.items()}
        return self.context.request.fetch(f"{self.url}/{path}", method=method, data=data, headers=sent, max_redirects=0)

    def send(self, filename: str, content: bytes) -> list[tuple[int, dict[str, Any]]]:
        """Upload a file as the page does; status and content of each answer."""
        begun = self.ask("POST", "files/uploads", data={"filename": filename, "size_bytes": len(content)})
        place = begun.headers["location"].lstrip("/")
        sent = self.ask("PATCH", place, data=content, Upload_Offset="0")
        done = self.ask("POST", f"{place}/finish")
        return [(begun.status, begun.json()), (sent.status, {}), (done.status, done.json())]

    def open(self, path: str, *texts: str) -> None:
        """Open an address and wait until these texts are there."""
        self.page.goto(f"{self.url}/{path}")
        self.read(*texts)

    def go(self, link: str, *texts: str) -> None:
        """Follow a link and wait until these texts are there."""
        self.page.get_by_role("link", name=link, exact=False).first.click()
        self.read(*texts)

    def read(self, *texts: str) -> None:
        for text in texts:
            expect(self.page.get_by_text(text).first).to_be_attached()


@dataclass
class House:
    """A dashboard with sign-in; `service` is a second one over the same home."""

    server: Server
    provider: IdentityProvider
    browser: Browser
    service: Service

    def enter(self) -> Visitor:
        """Somebody opens a browser."""
        context = self.browser.new_context(viewport={"width": 1440, "height": 900})
        visitor = Visitor(context, context.new_page(), self.server.url)

        def framed(socket: WebSocket) -> None:
            socket.on("framereceived", lambda frame: visitor.told.append(frame if isinstance(frame, bytes) else b""))

        def answered(answer: Response) -> None:
            documents = answer.request.resource_type in ("document", "xhr", "fetch") and answer.status == 200
            if documents and answer.url.startswith(visitor.url):
                visitor.told.append(answer.body())

        visitor.page.on("websocket", framed)
        visitor.page.on("response", answered)
        return visitor

    def sign_in(self, person: str) -> Visitor:
        """Somebody signs in with the identity provider."""
        visitor = self.enter()
        visitor.page.goto(self.server.url)
        visitor.page.get_by_role("button", name="Sign in").click()
        visitor.page.get_by_role("link", name=person).click()
        expect(visitor.page.get_by_text("Sign out")).to_be_visible()
        return visitor

    def acting(self, person: Actor) -> Service:
        return self.service.acting_as(person)

    def keep_model(self, person: str, filename: str, content: bytes) -> str:
        """Put a file of a network of torch's own layers into a person's library; returns its SHA-256."""
        sha256 = hashlib.sha256(content).hexdigest()
        place = self.server.home.file(sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        self.service.store.library.add_file(
            sha256=sha256,
            kind="model",
            filename=filename,
            format="module",
            size_bytes=len(content),
            facts={},
            owner=person,
        )
        return sha256


@contextmanager
def opened(playwright: Playwright, home: Home, groups: Mapping[str, str], roles: Mapping[str, str]) -> Iterator[House]:
    """A dashboard that these people can sign in to, each of a group; `roles` are those of the groups."""
    secrets = home.root / "secrets.toml"
    server = Server(home, free_port(), options=("--secrets.files", str(secrets)))
    people = {person: {"groups": [group]} for person, group in groups.items()}
    provider = IdentityProvider(free_port(), f"{server.url}/oauth2callback", people)
    given = "\n".join(f'{group} = "{role}"' for group, role in roles.items())
    secrets.write_text(
        f"""
[auth]
redirect_uri = "{provider.redirect_uri}"
cookie_secret = "{"for a test alone " * 3}"
client_id = "{CLIENT_ID}"
client_secret = "{CLIENT_SECRET}"
server_metadata_url = "{provider.issuer}/.well-known/openid-configuration"
[access.roles]
{given}
"""
    )
    provider.start()
    server.start()
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    service = Service.open(home)
    yield House(server, provider, browser, service)
    service.close()
    browser.close()
    server.kill()
    provider.stop()
