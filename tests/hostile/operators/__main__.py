"""Fuzzes what a graph or a pickled network may call, and prints the figures.

`python -m tests.hostile.operators --cases 40` runs 40 cases of each operator, layer and criterion, and programs of
random operators; `--operator NAME --case N` repeats one (`--operator program` a program). `--known` runs the leaks that
must be found. Contracts are checked first, but for `--no-contracts`.
"""

import argparse
import json
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Sequence

from tests.hostile import poison

PROGRAMS_PER_CASE = 10
HARMLESS = ("ran", "refused", "forbidden")


def figures(given: argparse.Namespace) -> dict[str, object]:
    import torch

    from tests.hostile.operators import known
    from tests.hostile.operators.batches import outcomes
    from tests.hostile.operators.cases import PROGRAM, Case, case, targets
    from tests.hostile.operators.child import Executor, Outcome
    from unifiednn_core.formats.contracts.table import check_call

    torch.set_num_threads(1)
    parts = given.operator.split(",")
    names = [name for name in sorted(targets()) if not given.known and any(part in name for part in parts)]
    numbers = range(given.first, given.first + given.cases) if given.case is None else [given.case]
    cases = [case(name, number) for name in names for number in numbers]
    if given.operator == PROGRAM:
        cases = [case(PROGRAM, number) for number in numbers]
    elif not given.operator and not given.known:
        cases += [
            case(PROGRAM, PROGRAMS_PER_CASE * number + more) for number in numbers for more in range(PROGRAMS_PER_CASE)
        ]
    if given.known:
        cases += known.leaks()
    warm = Executor()  # loads and compiles what children would have to, one by one
    for name in names:
        warm.outcome(case(name, 0))
        warm.outcome(case(name, 1))

    def begin() -> Executor:
        torch.set_num_threads(given.threads)
        return Executor(None if given.no_contracts else check_call)

    found: list[tuple[Case, Outcome]] = list(outcomes(cases, lambda: begin().outcome))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ran = {done.target for done, outcome in found if outcome.said == "ran"}
    return {
        "targets": len(names),
        "operators": sum(not name.startswith(("layer.", "criterion.")) for name in names),
        "cases": len(cases),
        "programs": sum(done.target == PROGRAM for done, _ in found),
        **Counter(outcome.said for _, outcome in found),
        "never_ran": [name for name in names if name not in ran],
        "seeds_kept_out": [
            f"{done}: {outcome.why}"
            for done, outcome in found
            if 0 <= done.number < 2 * len(targets().get(done.target, ()))
            and (outcome.said == "forbidden" or (outcome.said == "refused" and not done.gradients))
        ],
        "found": [
            {"said": outcome.said, "case": str(done), "why": outcome.why}
            for done, outcome in found
            if given.known or given.case is not None or outcome.said not in HARMLESS
        ],
        "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in used), 1),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--operator", default="")
    parser.add_argument("--case", type=int)
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--no-contracts", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(figures(parser.parse_args(arguments)), indent=1) + "\n")


if __name__ == "__main__":
    poison.start_over("tests.hostile.operators")
    main(sys.argv[1:])
