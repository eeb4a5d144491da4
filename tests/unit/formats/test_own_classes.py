"""What is shown for pickles of own classes; that its commands work is in `preflight/pack/test_user_code.py`."""

import io
import zipfile
from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import nn

from unifiednn_core.formats.module import pack_remedy


class Mine(nn.Sequential):
    pass


def shown(network: nn.Module, change: Callable[[bytes], bytes] = bytes) -> str | None:
    file = io.BytesIO()
    torch.save(network, file)
    with zipfile.ZipFile(file) as archive:
        return pack_remedy(change(archive.read("archive/data.pkl")))


@pytest.mark.parametrize(
    ("layers", "sample"),
    [
        ([nn.Conv1d(5, 2, 3)], "--input 5,LENGTH"),
        ([nn.ReLU(), Mine(nn.Conv2d(3, 2, 3), nn.Linear(4, 2))], "--input 3,HEIGHT,WIDTH"),
        ([nn.Conv3d(1, 2, 3)], "--input 1,DEPTH,HEIGHT,WIDTH"),
        ([nn.Linear(784, 2)], "--input 784"),
        ([nn.Embedding(50, 2), nn.Linear(2, 2)], "--input LENGTH --dtype int64"),
        ([nn.ReLU()], "--input SHAPE_OF_ONE_SAMPLE"),
    ],
)
def test_the_input_is_shown_as_far_as_the_first_layer_tells_it(layers: list[nn.Module], sample: str) -> None:
    said = shown(Mine(*layers))
    assert said is not None
    assert f"`unifiednn pack {__name__}:Mine {sample}`" in said
    assert f"in the folder that holds '{__name__.partition('.')[0]}'" in said
    assert f"`unifiednn pack FILE.pt {sample}`" in said


@pytest.mark.parametrize("name", ["a;rm -rf ~", "a`b", "a$(b)", "a b", "", "1a", "x" * 300])
def test_a_name_that_no_python_has_is_not_shown(name: str) -> None:
    """A command is copied into a shell."""
    own = f"c{__name__}\nMine\n".encode()
    for place in (f"c{name}\nMine\n", f"c{__name__}\n{name}\n"):

        def change(content: bytes, place: str = place) -> bytes:
            assert own in content
            return content.replace(own, place.encode())

        assert shown(Mine(), change) is None
        assert shown(nn.Sequential(Mine()), change) is None


def test_a_network_of_torch_alone_is_packed_as_a_file() -> None:
    said = shown(nn.Sequential(OrderedDict(a=nn.Bilinear(2, 3, 4))))
    assert said == (
        "On your own machine, run `unifiednn pack FILE.pt --input SHAPE_OF_ONE_SAMPLE` with the name of this file, "
        "and submit the .pt2 file."
    )
