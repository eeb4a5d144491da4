"""Virtual nodes: how a batch is cut into shares, who computes them, and which shares are best. Pure, without torch.

VirtualFlow (MLSys 2022): the nodes fix what is computed; the devices that compute them may change at any step.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import accumulate, pairwise

LEAST_GAIN = 0.05
"""Measured times scatter: shares stay equal unless unequal ones make a step shorter by this part."""
_PORTIONS = 1024


def lengths(samples: int, shares: Sequence[int]) -> list[int]:
    """Samples of each node that gets any, of a batch of `samples`; with equal shares as `torch.chunk` cuts.

    A unit is ceil(samples / sum of the shares). Each node takes as many units as its share is, as long as there are.
    """
    unit = -(-samples // sum(shares))
    ends = (min(samples, unit * end) for end in accumulate(shares))
    return [end - begin for begin, end in pairwise([0, *ends]) if end > begin]


def weight(part: int, samples: int) -> float:
    """Factor of the mean loss of `part` samples in a step of `samples`."""
    return part / samples


def waves(nodes: int, devices: int) -> list[range]:
    """Nodes that are computed at once: node i by device i modulo `devices`."""
    return [range(first, min(nodes, first + devices)) for first in range(0, nodes, devices)]


def seed_of(seed: int, step: int, node: int) -> int:
    """Seed of the random numbers of a node; `step` counts from 1, `node` from 0 over all batches of the step.

    The first 63 bits of the SHA-256 of "seed/step/node".
    """
    digest = hashlib.sha256(f"{seed}/{step}/{node}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def best_shares(samples: int, nodes: int, times_s: Sequence[Mapping[int, float]]) -> list[int] | None:
    """Samples of each node such that the slowest device needs the least time; None if equal ones are as good.

    `times_s` are the measured seconds of a part by its samples, one table per device. A device computes its nodes one
    after another, so its time is the sum of theirs.
    """
    tables = [_rising(table) for table in times_s[:nodes]]
    nodes_of = [len(range(device, nodes, len(tables))) for device in range(len(tables))]

    def seconds(device: int, held: int) -> float:
        each, more = divmod(held, nodes_of[device])
        times = [_at(tables[device], size) for size in (each, each + 1)]
        return (nodes_of[device] - more) * times[0] + more * times[1]

    held, left, portion = list(nodes_of), samples - nodes, max(1, samples // _PORTIONS)  # each node gets one sample
    line = [(seconds(device, held[device] + portion), device) for device in range(len(tables))]
    heapify(line)
    while left > 0:  # the next portion goes where it ends first, which is best for times that rise with the samples
        _, device = line[0]
        held[device] += min(portion, left)
        left -= portion
        heapreplace(line, (seconds(device, held[device] + portion), device))
    even = [sum(_evenly(samples, nodes)[device :: len(tables)]) for device in range(len(tables))]
    slowest, slowest_even = (max(map(seconds, range(len(tables)), one)) for one in (held, even))
    if slowest > (1 - LEAST_GAIN) * slowest_even:
        return None
    cut = [_evenly(held[device], nodes_of[device]) for device in range(len(tables))]
    return [cut[node % len(tables)][node // len(tables)] for node in range(nodes)]


def _evenly(samples: int, nodes: int) -> list[int]:
    each, more = divmod(samples, nodes)
    return [each + 1] * more + [each] * (nodes - more)


def _rising(table: Mapping[int, float]) -> list[tuple[int, float]]:
    """Times by size, the smallest size first; none is less than that of a smaller part."""
    sizes = sorted(table)
    return list(zip(sizes, accumulate((table[size] for size in sizes), max), strict=True))


def _at(table: Sequence[tuple[int, float]], size: int) -> float:
    """Time of a part of this size, on the line through the two nearest measurements."""
    if len(table) == 1:
        return table[0][1] * size / table[0][0]
    place = min(max(1, bisect_left(table, (size,))), len(table) - 1)
    (small, low), (large, high) = table[place - 1], table[place]
    return max(0.0, low + (high - low) * (size - small) / (large - small))
