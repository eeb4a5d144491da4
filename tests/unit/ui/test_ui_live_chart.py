from pages._ui import live_chart


def test_plotly_is_copied_whole_and_nothing_else_is_left(tmp_path):
    target = live_chart.install_plotly(tmp_path / "static")
    assert b"plotly.js" in target.read_bytes()[:200]
    assert [path.name for path in target.parent.iterdir()] == ["plotly.min.js"]


def test_a_copy_that_is_there_is_left_alone_and_a_damaged_one_replaced(tmp_path):
    target = live_chart.install_plotly(tmp_path)
    whole, made = target.read_bytes(), target.stat().st_ino
    assert live_chart.install_plotly(tmp_path).stat().st_ino == made
    target.write_bytes(b"half")
    live_chart.install_plotly(tmp_path)
    assert target.read_bytes() == whole
