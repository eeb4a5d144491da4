"""Where the entries of a tensor lie in its storage, and whether two of them are the same memory."""

from math import gcd

from torch import Tensor


def span(tensor: Tensor) -> tuple[int, int]:
    """Start and end in the storage, in entries."""
    start = int(tensor.storage_offset())
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + reach + 1


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two entries may be the same memory: each stride must pass all that the smaller ones reach."""
    reach = 0
    for stride, size in sorted(pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if pair[1] > 1):
        if stride <= reach:
            return tensor.numel() > 0
        reach += (size - 1) * stride
    return False


def overlap_in_part(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors may share some memory, but not all of it in the same order."""
    if not one.numel() or not two.numel():
        return False
    if one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr():
        return False
    if one.element_size() != two.element_size():
        return True
    (start, end), (other_start, other_end) = span(one), span(two)
    same = (one.shape, one.stride(), start) == (two.shape, two.stride(), other_start)
    apart = start >= other_end or other_start >= end
    return not (same or apart or _disjoint(one, two, other_start - start))


def _disjoint(one: Tensor, two: Tensor, distance: int) -> bool:
    """Whether the strides show that two tensors never meet: they are interleaved, or columns beside each other."""
    if distance % gcd(*one.stride(), *two.stride(), 0):
        return True
    if one.stride() != two.stride() or overlaps_itself(one) or overlaps_itself(two):
        return False
    if distance < 0:
        one, two, distance = two, one, -distance
    beyond, room = False, None  # room: entries until the next larger stride
    for stride, mine, other in sorted(zip(one.stride(), one.shape, two.shape, strict=True), reverse=True):
        if mine == other == 1 or not stride:
            continue
        steps, distance = divmod(distance, stride)
        if room is not None and (steps + other) * stride > room:
            return False  # it goes on in the next row
        beyond, room = beyond or steps >= mine, stride
    return beyond or distance > 0
