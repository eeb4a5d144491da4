"""Graphs of costs on which placement is tried, each the same for the same seed."""

import random
from dataclasses import replace

from unifiednn_core.techniques.placement.graph import CostGraph, Edge, Op, Weight

KIB = 1024


def random_graph(seed: int, most_ops: int = 12, *, training: bool | None = None, weights: bool = True) -> CostGraph:
    """A graph with branches; some operators share weights, some are views, some keep what they read."""
    draw = random.Random(seed)
    count, density = draw.randint(2, most_ops), draw.choice((0.15, 0.3, 0.5))
    trains = draw.random() < 0.5 if training is None else training
    ops = [
        Op(
            f"op{number}",
            draw.randint(1, 20) * 1e-4,
            draw.randint(0, 30) * 1e-4,
            draw.randint(0, 64) * KIB,
            saved_bytes=draw.choice((0, 0, 8 * KIB)),
            keeps_output=draw.random() < 0.3,
        )
        for number in range(count)
    ]
    edges: list[Edge] = []
    for target in range(1, count):
        sources = [source for source in range(target) if draw.random() < density] or [draw.randrange(target)]
        if draw.random() < 0.15:  # a view of the first thing that it reads
            base = ops[sources[0]].storage
            ops[target] = replace(ops[target], output_bytes=0, storage=sources[0] if base is None else base)
        for source in sources:
            size = ops[source].output_bytes
            edges.append(Edge(source, target, size, draw.choice((size, size, 0)), kept=draw.random() < 0.5))
    held = []
    for number in range(draw.randint(0, count // 2) if weights else 0):
        readers = sorted({draw.randrange(count) for _ in range(draw.choice((1, 1, 1, 2)))})
        held.append(Weight(f"w{number}", draw.randint(1, 200) * KIB, tuple(readers)))
    return CostGraph(tuple(ops), tuple(edges), tuple(held), training=trains)


def chain(seconds: list[float], *, size_bytes: int = 64 * KIB, weight_bytes: int = KIB) -> CostGraph:
    """Operators one after another, each with a weight, backward twice as long as forward."""
    ops = tuple(Op(f"op{number}", one, 2 * one, size_bytes) for number, one in enumerate(seconds))
    edges = tuple(Edge(at, at + 1, size_bytes, size_bytes, kept=True) for at in range(len(ops) - 1))
    held = tuple(Weight(f"w{at}", weight_bytes, (at,)) for at in range(len(ops)))
    return CostGraph(ops, edges, held)
