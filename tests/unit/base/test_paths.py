from pathlib import Path

import pytest

from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.paths import Home


def test_a_link_that_a_worker_made_in_place_of_a_file_is_not_served(home: Home, tmp_path: Path) -> None:
    secret, checkpoint = tmp_path / "secret", home.checkpoints("r", "n") / "step-000000001.safetensors"
    secret.write_bytes(b"a key")
    model = home.run("r") / "models" / "n.zip"
    assert home.newest_checkpoint("r", "n") is None and home.kept("r", "models/n.zip") == model
    for path in (model, checkpoint):
        path.parent.mkdir(parents=True)
        path.symlink_to(secret)
    with pytest.raises(NotFound, match="is a link"):
        home.kept("r", "models/n.zip")
    with pytest.raises(NotFound, match="is a link"):
        home.newest_checkpoint("r", "n")
    checkpoint.unlink()
    checkpoint.touch()
    assert home.newest_checkpoint("r", "n") == checkpoint
