"""Files that may come from a stranger: only regular files are read, up to a limit, and nothing
is written through a link; and YAML as people mean it.

A run's folder may be unpacked from anywhere. In it a name can be a pipe, a device, or a link
to a file of one's own. The folder itself may be a link: its owner typed it.
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

MOST_BYTES = 64 << 20  # of a file that is read whole
MOST_LINE = 256 << 20  # of one line, a record's: an answer of 64 MB fits, however it is written
_MOST_YAML = 1 << 20  # characters of a YAML text
_MOST_NODES = (
    100_000  # values of a YAML text, those that aliases and merges repeat counted each time
)
_SHOWN = 100  # characters of what is wrong in YAML
_UNNAMED = "unnamed"
_LONGEST_NAME, _DIGITS = 150, 8  # bytes of 255, as a task's name and a time are added; of a hash
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
RUN_FILE, SUITE_FILE = "run.json", "suite.json"  # either makes a folder a run's


def is_run_folder(folder: Path) -> bool:
    """Whether a folder holds a run, of one family or several."""
    return any(is_regular(folder / mark) for mark in (RUN_FILE, SUITE_FILE))


def is_regular(file: Path) -> bool:
    """Whether a file is there, and neither pipe, device, socket nor folder, also behind
    links."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except (OSError, ValueError):
        return False


def open_regular(file: Path) -> BufferedReader:
    """A regular file, to be read. Raises NeedlemapError for any other kind, OSError where
    there is none."""
    _refuse_odd(file, os.stat(file))  # before it is opened: opening some devices does something
    opened = open(file, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    try:
        _refuse_odd(file, os.fstat(opened.fileno()))
    except NeedlemapError:
        opened.close()
        raise
    return opened


def read_regular(file: Path, most: int = MOST_BYTES) -> bytes:
    """A regular file's bytes. Raises NeedlemapError for any other kind and for one that is too
    large."""
    with open_regular(file) as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise NeedlemapError(
            f"'{file}' is larger than {most >> 20} MB, which is more than such a file holds."
        )
    return data


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """A file's lines with their ends. One of more than MOST_LINE bytes is cut, and the
    last."""
    while line := file.readline(MOST_LINE):
        if len(line) == MOST_LINE and not line.endswith(b"\n"):
            yield line + b"\n"
            return
        yield line


def make_folder(folder: Path) -> None:
    """A run's folder, for its owner alone; what stands above it is made as usual. One that is
    there stays.

    Raises NeedlemapError where a link inside another run's folder leads to it.
    """
    refuse_link(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)


def make_inside(folder: Path) -> None:
    """A folder inside a run's. Raises NeedlemapError where its name is a link."""
    if folder.is_symlink():
        raise _link(folder)
    make_folder(folder)


def write_whole(file: Path, data: bytes) -> None:
    """Write a file so that it is either the old one or the new one, whatever happens. For its
    owner alone.

    It is made under a random name, and takes the place of whatever has its name, links
    too.
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
    """A file in a run's folder, to be written: 'ab', 'a+b', 'xb'. Raises NeedlemapError where
    it is none."""
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
    """Raises NeedlemapError where a report would be written through a link inside a run's
    folder."""
    linked: Path | None = None
    for path in (target, *target.parents):
        if linked is not None and any((path / name).exists() for name in (RUN_FILE, SUITE_FILE)):
            raise _link(linked)
        linked = path if path.is_symlink() or _has_other_names(path) else linked


def write_report(target: Path, data: bytes) -> Path:
    """Write a file that a user named, and the folders above it. Raises NeedlemapError as
    `refuse_link`."""
    refuse_link(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target


def _refuse_odd(file: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a device or a socket"
        raise NeedlemapError(f"'{file}' is {kind}, not a file.")


def _has_other_names(file: Path) -> bool:
    """Whether a regular file is there under another name too, which may be one outside."""
    return is_regular(file) and file.stat().st_nlink > 1


def _link(file: Path) -> NeedlemapError:
    return NeedlemapError(
        f"'{file}' is a link, or no file: needlemap writes through no link inside a run's folder. "
        f"Delete it, "
        f"or give another folder or file with -o."
    )


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _without_links(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _PRIVATE_FILE)


@cache
def _yaml_loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's safe loader, but `10:30` is a text, where YAML 1.1 takes it for the number
    630 in base sixty."""
    # Late: who only builds prompts reads no YAML, and PyYAML is a tenth of our imports.
    import yaml

    class YamlLoader(yaml.SafeLoader):
        pass

    def number(loader: YamlLoader, node: yaml.ScalarNode) -> object:
        if ":" in node.value:
            return node.value
        whole = node.tag.endswith(":int")
        return loader.construct_yaml_int(node) if whole else loader.construct_yaml_float(node)

    for kind in ("int", "float"):
        YamlLoader.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    return YamlLoader


def read_yaml(text: str) -> Any:
    """The data of a YAML text. Raises yaml.YAMLError."""
    import yaml

    if len(text) > _MOST_YAML:
        raise yaml.YAMLError(f"it is larger than {_MOST_YAML >> 20} MB")
    loader = _yaml_loader()(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _nodes(node, {}) > _MOST_NODES:
            raise yaml.YAMLError(f"with its aliases it holds more than {_MOST_NODES:,} values")
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (
        ValueError,
        OverflowError,
    ) as error:  # a number of thousands of digits, a date that is none
        raise yaml.YAMLError(f"it holds an invalid value: {str(error)[:_SHOWN]}") from None
    finally:
        loader.dispose()


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a YAML node stands for, with those that aliases and merges repeat.
    Raises yaml.YAMLError where one holds itself. known: of nodes that were counted; 0 of those
    that enclose this one."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return 1
    if known.setdefault(id(node), -1) == 0:
        raise yaml.YAMLError("an alias names what it stands in")
    if known[id(node)] < 0:
        known[id(node)] = 0
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [each for pair in parts for each in pair]
        known[id(node)] = 1 + sum(_nodes(part, known) for part in parts)
    return known[id(node)]


def plain_name(family: str) -> bool:
    """Whether a family's name may be that of a folder in a run."""
    return family[:1].isalnum() and all(letter.isalnum() or letter in "-_." for letter in family)


def folder_name(text: str, keep: str = "") -> str:
    """Return a text as the name of one folder, inside of where it is put: never '.', '..', '' or
    one too long for a file system. keep: signs that stay, too.

    >>> folder_name("openai/org/my model"), folder_name(".."), folder_name("a@b", keep="@")
    ('openai-org-my-model', 'unnamed', 'a@b')
    """
    kept = f"-._{keep}"
    plain = "".join(letter if letter.isalnum() or letter in kept else "-" for letter in text)
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
        numbered = (name, *(f"{name}-{number}" for number in range(2, len(texts) + 2)))
        names.append(next(each for each in numbered if each.casefold() not in taken))
        taken.add(names[-1].casefold())
    return names


def is_yaml(name: str) -> bool:
    """Whether a name is the path of a YAML file."""
    return Path(name).suffix in (".yaml", ".yml")
