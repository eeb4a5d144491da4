"""Kinds of data files: how each is recognised by its bytes, mapped, or read block by block."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import (
    archives,
    arrays,
    cifar,
    images,
    jsonl,
    npz,
    tables,
    tabular,
)
from unifiednn_core.data.archives import Archive
from unifiednn_core.data.parts import Opened, Parts, of_opened, opened_whole, refuse_size, with_channels_first
from unifiednn_core.data.pictures import SUFFIXES
from unifiednn_core.data.values import AS_STORED, DataNotes, ImportOptions
from unifiednn_core.formats import kinds, registry, tensor_files, zips

Reading = Callable[[Path, ImportOptions], AbstractContextManager[Parts]]


@dataclass(frozen=True, slots=True)
class Container:
    """One kind of file that can hold data."""

    name: str
    sniff: Callable[[Path], bool]
    open: Callable[[Path], Opened]  # its only data set; raises `BadInput` for several
    parts: Reading
    mapped: Callable[[Path], bool]  # whether `open` maps the file as it is, so that it need not be converted
    decodes_images: bool = False


def container_of(path: Path) -> str | None:
    """Name the container of a file by its bytes; None if it cannot hold a data set."""
    return next((one.name for one in CONTAINERS if one.sniff(path)), None)


def found_container(path: Path) -> Container:
    """The container of a file; raises `BadInput` if it cannot hold a data set."""
    found = next((one for one in CONTAINERS if one.sniff(path)), None)
    if found is not None:
        return found
    message = f"The file is a network ({registry.format_of(path).name}), not one of these: {', '.join(KINDS)}."
    remedy = 'Save a dict: torch.save({"inputs": inputs, "targets": targets}, path).'
    raise tensor_files.bad_file(path, "Not a data set", message, remedy)


def open_data(path: Path) -> Opened:
    """Open a data file without checking its content. Raises `BadInput` or `HostileFile`."""
    return found_container(path).open(path)


@contextmanager
def read_parts(path: Path, options: ImportOptions) -> Iterator[Parts]:
    """Read the data sets of a file block by block, with these choices; raises `BadInput` or `HostileFile`."""
    container = found_container(path)
    if not container.decodes_images:
        refuse_size(path, options)
    with container.parts(path, options) as parts:
        yield with_channels_first(path, parts) if options.channels_last else parts


def _whole(parts: Reading) -> Callable[[Path], Opened]:
    def open_(path: Path) -> Opened:
        with parts(path, AS_STORED) as found:
            return opened_whole(path, found)

    return open_


def _read(parts: Callable[[Path, ImportOptions], Parts]) -> Reading:
    @contextmanager
    def reading(path: Path, options: ImportOptions) -> Iterator[Parts]:
        yield parts(path, options)

    return reading


def _torch(path: Path) -> Opened:
    return arrays.opened(path, lambda: arrays.load_saved(path))


def _torch_parts(path: Path, _: ImportOptions) -> Parts:
    return arrays.parts_of_file(path, lambda: arrays.load_saved(path))


def _torch_is_mapped(path: Path) -> bool:
    if arrays.is_tensor_dataset(path):
        return False
    if tensor_files.is_pickled_object(path):
        return True
    try:
        loaded, plain = arrays.load_saved(path), arrays.is_dict(path)
    except BadInput:  # its reader reports what is wrong
        return True
    return not arrays.looks_like_data(loaded) or (plain and _is_plain(loaded))


def _is_plain(found: Mapping[str, Any]) -> bool:
    return not arrays.needs_conversion(found) and not arrays.renames(found)


def _safetensors(path: Path) -> Opened:
    notes = DataNotes.of(tensor_files.safetensors_metadata(path))
    return arrays.opened(path, lambda: tensor_files.load_safetensors(path), notes)


def _safetensors_parts(path: Path, _: ImportOptions) -> Parts:
    notes = DataNotes.of(tensor_files.safetensors_metadata(path))
    return arrays.parts_of_file(path, lambda: tensor_files.load_safetensors(path), notes)


def _safetensors_is_mapped(path: Path) -> bool:
    return _is_plain(tensor_files.load_safetensors(path))


@contextmanager
def _npz_parts(path: Path, _: ImportOptions) -> Iterator[Parts]:
    if npz.is_read_forwards(path):
        with npz.unpacked(path) as parts:
            yield parts
    else:
        yield arrays.parts_of_file(path, lambda: npz.load_npz(path))


def _npz(path: Path) -> Opened:
    if npz.is_read_forwards(path):
        return _whole(_npz_parts)(path)
    return arrays.opened(path, lambda: npz.load_npz(path))


def _npz_is_mapped(path: Path) -> bool:
    return not npz.is_read_forwards(path) and _is_plain(npz.load_npz(path))


@contextmanager
def _archive(path: Path, options: ImportOptions) -> Iterator[Parts]:
    with archives.opened(path) as archive:
        yield _parts_of(archive, options)


def _parts_of(archive: Archive, options: ImportOptions) -> Parts:
    """What is in an archive, judged by the names of its files; raises `BadInput` or `HostileFile`."""
    names = [entry.name for entry in archive.entries]
    decodes_images = any(name.lower().endswith(SUFFIXES) for name in names)
    if not decodes_images:
        refuse_size(archive.path, options)
    if any(cifar.is_name(name) for name in names):
        return cifar.batches(archive, options)
    if any(npz.is_name(name) for name in names):
        return npz.files(archive, options)
    if names and all(name.endswith(".npy") for name in names):
        return npz.streamed(archive)
    if images.has_masks(archive):
        return images.pairs(archive, options)
    if images.has_labels(archive):
        return images.samples(archive, options)
    if decodes_images:
        return images.folders(archive, options)
    if (said := kinds.in_archive(names)) is not None:
        raise tensor_files.bad_file(archive.path, *said)
    message = f"The archive holds {len(names):,} files, none of a known kind: {', '.join(names[:3])[:200]}."
    remedy = "Pack images in one folder for each class (cat/1.png), IDX files, x.npy with y.npy, or WebDataset samples."
    raise archives.no_layout(archive.path, message, remedy)


def _is_archive(path: Path) -> bool:
    """Whether the file is a tar, or a zip in which there may be data."""
    names = zips.names(path)
    return archives.is_tar(path) or (
        any(name.lower().endswith(SUFFIXES) or npz.is_name(name) or cifar.is_name(name) for name in names)
        and not kinds.is_package(names)
    )


def _never(path: Path) -> bool:
    return False


def _table_parts(path: Path, _: ImportOptions) -> Parts:
    return {"": of_opened(tabular.read_table(path))}


CONTAINERS = (
    Container("tensors", arrays.is_tensor_dataset, _torch, _read(_torch_parts), _torch_is_mapped),
    Container("pt", tensor_files.is_torch_file, _torch, _read(_torch_parts), _torch_is_mapped),
    Container(
        "safetensors", tensor_files.is_safetensors, _safetensors, _read(_safetensors_parts), _safetensors_is_mapped
    ),
    Container("npz", npz.is_npz, _npz, _npz_parts, _npz_is_mapped),
    Container("parquet", tables.is_parquet, tabular.read_table, _read(_table_parts), _never),
    Container("archive", _is_archive, _whole(_archive), _archive, _never, decodes_images=True),
    Container("idx", npz.is_idx, _whole(_read(npz.refused_idx)), _read(npz.refused_idx), _never),
    Container("npy", npz.is_npy, _whole(_read(npz.refused)), _read(npz.refused), _never),
    Container("cifar", cifar.is_batch, _whole(_read(cifar.single)), _read(cifar.single), _never),
    Container("csv", tables.is_csv, tabular.read_table, _read(_table_parts), _never),
    Container("jsonl", jsonl.is_jsonl, tabular.read_table, _read(_table_parts), _never),
)
KINDS = (
    ".pt",
    ".safetensors",
    ".npz",
    ".csv",
    ".parquet",
    ".jsonl",
    "a zip or tar of images, .npy or IDX files",
    "CIFAR's pickles",
)
DATA_ALONE = frozenset({"tensors", "npz", "parquet", "idx", "npy", "cifar"})
"""Containers that never hold a network."""
