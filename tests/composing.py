"""Reads docker-compose.yml, to run its commands as processes: only names of hosts and ports are replaced."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Composition:
    document: dict[str, Any]
    variables: Mapping[str, str]
    """Of the shell in which `docker compose` would run."""

    @classmethod
    def read(cls, path: Path, **variables: str) -> "Composition":
        return cls(yaml.safe_load(path.read_text(encoding="utf-8")), variables)

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        return self.document["services"]

    def environment(self, name: str) -> dict[str, str]:
        return {key: self._filled(str(value)) for key, value in self.services[name].get("environment", {}).items()}

    def command(self, name: str) -> list[str]:
        """Program and arguments of a service; our image's entry point is that of the Dockerfile."""
        service = self.services[name]
        entry = service.get("entrypoint", entry_point() if service["image"] == "unifiednn" else [])
        return [self._filled(word) for word in (*_words(entry), *_words(service.get("command", [])))]

    def _filled(self, text: str) -> str:
        """As compose fills in variables: `${NAME:-default}`."""
        return re.sub(r"\$\{(\w+):-(\w*)\}", lambda found: self.variables.get(found[1]) or found[2], text)


def entry_point() -> list[str]:
    """The ENTRYPOINT of the Dockerfile."""
    [line] = re.findall(r"^ENTRYPOINT (\[.*\])$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    return yaml.safe_load(line)


def _words(given: str | list[str]) -> list[str]:
    return shlex.split(given) if isinstance(given, str) else given
