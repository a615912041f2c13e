"""What every step behind a product is."""

from __future__ import annotations


class Epilogue:
    """The base of what `epilogue=` takes."""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({values})"
