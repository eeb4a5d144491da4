from textwrap import wrap

from tools import architecture


def test_the_picture_shows_todays_rooms() -> None:
    """`python -m tools.architecture` draws it anew."""
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.draw()


def test_no_text_leaves_its_box() -> None:
    """Two lines fit below the name."""
    for name in (name for row in architecture.layers() for name in row):
        assert len(wrap(architecture._summary(name), architecture.LINE_CHARACTERS)) <= 2, name


def test_every_package_has_a_place_in_the_contract() -> None:
    packages = {path.parent.name for path in (architecture.ROOT / architecture.PACKAGE).glob("*/__init__.py")}
    named = {name.removeprefix(f"{architecture.PACKAGE}.") for row in architecture.layers() for name in row}
    assert packages == named - {"pages"}


def test_the_contract_can_be_read_aloud() -> None:
    assert len(architecture.layers()) <= 11
