"""Name the packages that an optional part of needlemap needs, and the line that installs them.

The line names the packages themselves, as pyproject.toml has them. So it works for a checkout, a
wheel and a tagged archive.
"""

from __future__ import annotations

FROM_SOURCE = "python3 -m pip install ."
NEWER = f"Install a newer needlemap. In its source, type: {FROM_SOURCE}"


def packages_of(extra: str) -> tuple[str, ...]:
    """Return the requirements of an extra, or none if there is no such extra.

    >>> packages_of("parquet")
    ('pyarrow>=17',)
    """
    # Late: not needed if nothing is missing.
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = requires("needlemap") or []
    except PackageNotFoundError:
        # It runs from its source, without an installation.
        return ()
    packages = []
    for requirement in requirements:
        package, _, marker = requirement.partition(";")
        if marker.replace('"', "'").strip() == f"extra == '{extra}'":
            packages.append(package.strip())
    return tuple(packages)


def install_line(extra: str, *more: str) -> str:
    """Return the command that installs the packages of an extra, and more of them.

    >>> install_line("parquet")
    "python3 -m pip install 'pyarrow>=17'"
    """
    packages = (*packages_of(extra), *more)
    words = " ".join(f"'{package}'" for package in packages) or repr(f".[{extra}]")
    return f"python3 -m pip install {words}"
