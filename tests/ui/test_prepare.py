import shlex

from typer.testing import CliRunner

from pages._ui import uploads
from tests.ui.reading import text_of
from unifiednn_core.cli import files as commands_of_files
from unifiednn_core.cli import main as cli
from unifiednn_core.preflight.pack.request import ExampleInput, PackReport


def shown(app):
    return " ".join([*(element.value for element in (*app.markdown, *app.code)), text_of(app)])


def test_it_stands_beside_the_button_that_adds_and_goes_while_one_is_edited(open_page):
    app = open_page("build")
    assert uploads.COMMAND in shown(app)
    app.button(key="add").click().run()
    assert not app.exception
    assert uploads.COMMAND not in shown(app)


def test_the_command_line_takes_every_word_that_is_shown(monkeypatch):
    asked = []
    monkeypatch.setattr(commands_of_files, "_packed", lambda request: asked.append(request) or PackReport())
    options = [word for option, _ in uploads.OPTIONS if option not in uploads.COMMAND for word in shlex.split(option)]
    CliRunner().invoke(cli.app, [*shlex.split(uploads.COMMAND)[1:], *options])
    [request] = asked
    assert request.example.inputs == (ExampleInput(shape=(1, 28, 28), dtype="int64", free=frozenset({1})),)
    assert (request.source.factory, request.source.arguments) == ("Net", {"width": 16})
