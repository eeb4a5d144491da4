"""Writes networks of the paper at full size, untrained: `python -m sample_models.paper [NAME ...] [--to FOLDER]`.

All six have 1.8 GiB. The entry "architecture" that a spec needs beside a `.safetensors` file is printed.
"""

import argparse
import json
import sys
from pathlib import Path

from sample_models.paper_networks import NETWORKS
from sample_models.weights import write

HERE = Path(__file__).parent
SEED = 200


def main(names: list[str], folder: Path) -> list[Path]:
    """Write `paper_NAME.safetensors` or `.pt2` for each name and return the paths; existing files stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for place, (name, network) in enumerate(NETWORKS.items()):
        if name in names:
            path = folder / f"paper_{name}{network.suffix}"
            if not path.is_file():
                arguments = network.args("paper")
                write(path, network.architecture, arguments, SEED + place, network.sample["paper"], network.dtype)
            paths.append(path)
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m sample_models.paper", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}; without one all of them")
    parser.add_argument("--to", type=Path, default=HERE, metavar="FOLDER", help="where to write them")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(NETWORKS):
        parser.error(f"there is no network {min(unknown)}; choose from {', '.join(NETWORKS)}")
    for name in asked.names or NETWORKS:
        (written,) = main([name], asked.to)
        network = NETWORKS[name]
        named = {"name": network.architecture, "args": network.args("paper")}
        sys.stdout.write(f"{written} {json.dumps(named) if network.suffix == '.safetensors' else ''}\n")
