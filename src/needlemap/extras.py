"""The packages that an optional part of needlemap needs, and the line that installs them.

The line names the packages themselves, as pyproject.toml has them. So it works wherever
needlemap came from: a checkout, a wheel or a tagged archive.
"""

from __future__ import annotations

FROM_SOURCE = "python3 -m pip install ."
NEWER = f"Install a newer needlemap. In its source, type: {FROM_SOURCE}"


def packages_of(extra: str) -> tuple[str, ...]:
    """The requirements of an extra; none where there is no such extra.

    >>> packages_of("parquet")
    ('pyarrow>=17',)
    """
    from importlib.metadata import (  # not for those who lack nothing
        PackageNotFoundError,
        requires,
    )

    try:
        stated = requires("needlemap") or []
    except PackageNotFoundError:  # run from its source, without an installation
        return ()
    split = (line.partition(";") for line in stated)
    return tuple(
        package.strip()
        for package, _, marker in split
        if marker.replace('"', "'").strip() == f"extra == '{extra}'"
    )


def install_line(extra: str, *more: str) -> str:
    """The command that installs the packages of an extra, and more of them.

    >>> install_line("parquet")
    "python3 -m pip install 'pyarrow>=17'"
    """
    words = " ".join(f"'{each}'" for each in (*packages_of(extra), *more))
    return f"python3 -m pip install {words or repr(f'.[{extra}]')}"
