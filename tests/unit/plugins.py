"""Another package with a policy or a format, as pip installs it."""

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, module: str, source: str, group: str, points: Mapping[str, str]) -> None:
    """Write a module and the metadata of its package into `folder`; `points` are entry points, class by name."""
    (folder / f"{module}.py").write_text(source)
    package = folder / f"{module}-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{cls}" for name, cls in points.items()]
    (package / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
