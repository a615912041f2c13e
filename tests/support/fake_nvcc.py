"""A stand-in for nvcc."""

from __future__ import annotations

from pathlib import Path


def fake_nvcc(folder: Path, body: str) -> Path:
    """A compiler that does what `body` says. Its version is the same whatever it does, and so are its keys."""
    path = folder / "nvcc"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "tools, release 99.0, V99.0.1" && exit 0\n{body}\n')
    path.chmod(0o755)
    return path


# Writes what stands for an image to the file that --output-file= names.
WRITE_IMAGE = 'for a in "$@"; do case "$a" in --output-file=*) echo image > "${a#--output-file=}";; esac; done'
