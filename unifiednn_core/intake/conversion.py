"""Tables, zips of images and compressed arrays become `.safetensors` once: all that follows maps one container."""

from pathlib import Path

from unifiednn_core.intake import npz, registry
from unifiednn_core.intake.data_writing import write_dataset
from unifiednn_core.intake.datasets import container_of, read_dataset

CONVERTED = ("csv", "parquet", "images")


def is_needed(path: Path) -> bool:
    """Whether the file holds a data set that cannot be mapped as it is; raises `HostileFile`."""
    container = container_of(path)
    if container == "npz":
        return npz.is_compressed(path)
    return container in CONVERTED and registry.sniff(path) is None


def convert(path: Path, target: Path) -> None:
    """Write the data set of a file as safetensors; raises `BadInput`, `HostileFile` or `OSError`."""
    dataset = read_dataset(path)
    origin = dataset.notes.origin or container_of(path) or ""
    write_dataset(target, dataset, dataset.notes.model_copy(update={"origin": origin}))
