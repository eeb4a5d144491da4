import hashlib

import torch

from unifiednn_core.formats.weights import host_copy, state_sha256


def test_the_hash_is_the_one_that_the_recipe_describes() -> None:
    state = {"b": torch.tensor([1, 2], dtype=torch.int64), "a": torch.tensor(0.5)}
    digest = hashlib.sha256()
    digest.update(b"a" + b"torch.float32" + b"[]" + b"\x00\x00\x00\x3f")
    digest.update(b"b" + b"torch.int64" + b"[2]" + b"\x01" + b"\x00" * 7 + b"\x02" + b"\x00" * 7)
    assert state_sha256(state) == digest.hexdigest()


def test_the_hash_does_not_see_order_or_layout_but_every_bit() -> None:
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    state = {"w": weight, "n": torch.empty(0), "h": torch.ones(2, dtype=torch.bfloat16)}
    same = {"h": state["h"], "n": state["n"], "w": weight.t().contiguous().t()}
    assert state_sha256(state) == state_sha256(same)
    assert state_sha256(state) != state_sha256({**state, "w": torch.where(weight == 5, -0.0, weight)})
    assert state_sha256({"w": torch.tensor([0.0])}) != state_sha256({"w": torch.tensor([-0.0])})
    assert state_sha256({"w": weight}) != state_sha256({"w": weight.reshape(3, 2)})
    assert state_sha256({"w": weight}) != state_sha256({"v": weight})


def test_a_host_copy_shares_nothing() -> None:
    weight = torch.ones(2, 2).t()
    copy = host_copy({"w": weight})
    weight.zero_()
    assert torch.equal(copy["w"], torch.ones(2, 2))
    assert copy["w"].is_contiguous()
