"""The forms of webhooks and health."""

from streamlit.testing.v1 import AppTest

from tests.ui.reading import press, text_of

PAGE = """
from pages._ui import frame, {name}
{name}.draw()
"""


def drawn(name: str) -> AppTest:
    app = AppTest.from_string(PAGE.format(name=name), default_timeout=60).run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_a_webhook_is_added_with_its_secret_shown_once_tried_and_removed(service) -> None:
    app = drawn("notifications_form")
    assert "No webhooks yet" in text_of(app)
    app.text_input("hook-url").input("http://127.0.0.1:1/hidden-part-of-it")
    press(app, "Add webhook")
    [made] = service.notifications.webhooks()
    assert "Copy the secret now" in text_of(app) and app.code[0].value.startswith("whsec_")
    app.run()
    assert not app.code and "1 webhook" in text_of(app) and "hidden-part" not in text_of(app)
    app.selectbox("hook-chosen").select(made.webhook_id).run()
    press(app, "Send a test")
    assert "No answer" in text_of(app)  # nobody listens there
    press(app, "Remove webhook")
    assert service.notifications.webhooks() == () and "No webhooks yet" in text_of(app)


def test_a_refusal_says_what_to_do(service) -> None:
    app = drawn("notifications_form")
    app.text_input("hook-url").input("nowhere")
    press(app, "Add webhook")
    assert "Give one such as" in text_of(app) and service.notifications.webhooks() == ()


def test_health_shows_every_part(service) -> None:
    said = text_of(drawn("health"))
    assert "Not healthy" in said and "The supervisor does not run" in said  # nothing is launched here
    assert all(word in said for word in ("Store", "Supervisor", "Reading of files", "Disk"))
