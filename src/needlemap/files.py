"""Read and write files that may come from a stranger, and read YAML as people mean it.

Only regular files are read, up to a limit, and nothing is written through a link. A run's folder
may be unpacked from anywhere: in it a name can be a pipe, a device, or a link to a file of the
user's. The folder itself may be a link, because its owner typed it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from tempfile import mkstemp
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from needlemap.errors import NeedlemapError

if TYPE_CHECKING:
    import yaml

# Of a file that is read whole.
MOST_BYTES = 64 << 20
# Of one line, which is a record: an answer of 64 MB fits, however it is written.
MOST_LINE = 256 << 20
# Characters of a YAML text.
_MOST_YAML = 1 << 20
# Values of a YAML text. Those that aliases and merges repeat are counted each time.
_MOST_NODES = 100_000
# Characters of what is wrong in YAML.
_SHOWN = 100
_UNNAMED = "unnamed"
# Bytes of 255, because a task's name and a time are added.
_LONGEST_NAME = 150
# Of a hash.
_DIGITS = 8
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
# Either of these makes a folder that of a run.
RUN_FILE = "run.json"
SUITE_FILE = "suite.json"


def is_run_folder(folder: Path) -> bool:
    """Return True if a folder holds a run, of one family or several."""
    return any(is_regular(folder / mark) for mark in (RUN_FILE, SUITE_FILE))


def is_regular(file: Path) -> bool:
    """Return True if a path is a file or leads to one, and not to a pipe, device or folder."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except (OSError, ValueError):
        return False


def open_regular(file: Path) -> BufferedReader:
    """Open a regular file to read it.

    Raises NeedlemapError for any other kind, and OSError if there is none.
    """
    # Before it is opened, because opening some devices has effects.
    _refuse_odd(file, os.stat(file))
    opened = open(file, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    try:
        _refuse_odd(file, os.fstat(opened.fileno()))
    except NeedlemapError:
        opened.close()
        raise
    return opened


def read_regular(file: Path, most: int = MOST_BYTES) -> bytes:
    """Return a regular file's bytes.

    Raises NeedlemapError for any other kind, and for a file that is too large.
    """
    with open_regular(file) as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise NeedlemapError(
            f"'{file}' is larger than {most >> 20} MB, which is more than such a file holds."
        )
    return data


def sha256_of(file: Path) -> str:
    """Return the sha256 of a regular file of any size.

    Raises NeedlemapError for any other kind.
    """
    with open_regular(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's lines with their ends.

    A line of more than MOST_LINE bytes is cut, and the last one.
    """
    while line := file.readline(MOST_LINE):
        if len(line) == MOST_LINE and not line.endswith(b"\n"):
            yield line + b"\n"
            return
        yield line


def make_folder(folder: Path) -> None:
    """Make a run's folder, for its owner alone. One that exists stays.

    The folders above it are made with the usual permissions. Raises NeedlemapError if a link inside
    another run's folder leads to it.
    """
    refuse_link(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)


def make_inside(folder: Path) -> None:
    """Make a folder inside a run's. Raises NeedlemapError if its name is a link."""
    if folder.is_symlink():
        raise _link(folder)
    make_folder(folder)


def write_whole(file: Path, data: bytes) -> None:
    """Write a file so that at any moment it holds either the old bytes or the new ones.

    Only its owner may read it. If a link has its name, the link is replaced.
    """
    descriptor, temporary = mkstemp(dir=file.parent, prefix=f".{file.stem}-", suffix=".tmp")
    try:
        with open(descriptor, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def open_inside(file: Path, mode: str) -> IO[bytes]:
    """Open a file in a run's folder to write it.

    mode: 'ab', 'a+b' or 'xb'. Raises NeedlemapError if it is not a regular file of its own.
    """
    try:
        opened: IO[bytes] = open(file, mode, opener=_without_links)  # noqa: SIM115
    except OSError as error:
        if file.is_symlink() or (file.exists() and not is_regular(file)):
            raise _link(file) from None
        raise error
    status = os.fstat(opened.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        opened.close()
        raise _link(file)
    return opened


def refuse_link(target: Path) -> None:
    """Raise NeedlemapError if a report would be written through a link inside a run's folder.

    Links above the run's folder are the user's own.
    """
    # The outermost link so far.
    link: Path | None = None
    for path in (target, *target.parents):
        if link is not None and any((path / name).exists() for name in (RUN_FILE, SUITE_FILE)):
            raise _link(link)
        if path.is_symlink() or _has_other_names(path):
            link = path


def write_report(target: Path, data: bytes) -> Path:
    """Write a file that a user named, and make the folders above it.

    Raises NeedlemapError as `refuse_link` does.
    """
    refuse_link(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target


def _refuse_odd(file: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a device or a socket"
        raise NeedlemapError(f"'{file}' is {kind}, not a file.")


def _has_other_names(file: Path) -> bool:
    """Return True if a regular file has another name too, which may be outside of the folder."""
    return is_regular(file) and file.stat().st_nlink > 1


def _link(file: Path) -> NeedlemapError:
    return NeedlemapError(
        f"'{file}' is a link, or no file: needlemap writes through no link inside a run's folder. "
        f"Delete it, or give another folder or file with -o."
    )


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _without_links(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _PRIVATE_FILE)


@cache
def _yaml_loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's safe loader, for which `10:30` is a text.

    In YAML 1.1 that is the number 630 in base sixty.
    """
    # Late: not needed if only prompts are built, and PyYAML is a tenth of our imports.
    import yaml

    class YamlLoader(yaml.SafeLoader):
        pass

    def number(loader: YamlLoader, node: yaml.ScalarNode) -> object:
        if ":" in node.value:
            return node.value
        if node.tag.endswith(":int"):
            return loader.construct_yaml_int(node)
        return loader.construct_yaml_float(node)

    for kind in ("int", "float"):
        YamlLoader.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    return YamlLoader


def read_yaml(text: str) -> Any:
    """Return the data of a YAML text. Raises yaml.YAMLError."""
    import yaml

    if len(text) > _MOST_YAML:
        raise yaml.YAMLError(f"it is larger than {_MOST_YAML >> 20} MB")
    loader = _yaml_loader()(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_values(node, {}) > _MOST_NODES:
            raise yaml.YAMLError(f"with its aliases it holds more than {_MOST_NODES:,} values")
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        # E.g. a number of thousands of digits, or a date that does not exist.
        raise yaml.YAMLError(f"it holds an invalid value: {str(error)[:_SHOWN]}") from None
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Return how many values a YAML node has, with those that aliases and merges repeat.

    counts: of nodes that were counted, by their identity; 0 for those around this one. Raises
    yaml.YAMLError if a node holds itself.
    """
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return 1
    count = counts.get(id(node))
    if count == 0:
        raise yaml.YAMLError("an alias names what it stands in")
    if count is None:
        counts[id(node)] = 0
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        count = 1 + sum(_count_values(part, counts) for part in parts)
        counts[id(node)] = count
    return count


def plain_name(family: str) -> bool:
    """Return True if a family's name may be that of a folder in a run."""
    return family[:1].isalnum() and all(letter.isalnum() or letter in "-_." for letter in family)


def folder_name(text: str, keep: str = "") -> str:
    """Return a text as the name of one folder.

    It is never '.', '..', '' or too long for a file system, so it stays inside the folder that it
    is put into. keep: further signs that stay.

    >>> folder_name("openai/org/my model"), folder_name(".."), folder_name("a@b", keep="@")
    ('openai-org-my-model', 'unnamed', 'a@b')
    """
    signs = f"-._{keep}"
    plain = "".join(letter if letter.isalnum() or letter in signs else "-" for letter in text)
    name = plain.lstrip(".-") or _UNNAMED
    data = name.encode()
    if len(data) <= _LONGEST_NAME:
        return name
    # Names of checkpoints differ at their ends.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{data[: _LONGEST_NAME - _DIGITS - 1].decode('utf-8', 'ignore')}-{digest}"


def folder_names(texts: Sequence[str], keep: str = "") -> list[str]:
    """Return texts as the names of folders, of which no two are one in any file system.

    >>> folder_names(["a/b", "A-b", "c"])
    ['a-b', 'A-b-2', 'c']
    """
    names: list[str] = []
    taken = set[str]()
    for text in texts:
        name = folder_name(text, keep)
        candidates = (name, *(f"{name}-{number}" for number in range(2, len(texts) + 2)))
        unique = next(name for name in candidates if name.casefold() not in taken)
        names.append(unique)
        taken.add(unique.casefold())
    return names


def is_yaml(name: str) -> bool:
    """Return True if a name is the path of a YAML file."""
    return Path(name).suffix in (".yaml", ".yml")
