"""For mkdocstrings (mkdocs.yml): functions that a module makes when it is imported, and second names of functions.

Griffe reads source text, where such a name is a variable. Here the package itself is asked what it is.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe


class FunctionsMadeAtImport(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        form: Any = {"docstring_parser": loader.docstring_parser, "docstring_options": loader.docstring_options}
        for module in [pkg, *_modules(pkg)]:
            made = _made(module)
            found = griffe.inspect(module.path, **form) if made else module
            for name in made:
                function = found.members[name]
                if isinstance(function, griffe.Function):
                    function.name = name  # of a second name, the first one
                    module.set_member(name, function)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    below = [member for member in module.modules.values() if not member.is_alias]
    return below + [deeper for each in below for deeper in _modules(each)]


def _made(module: griffe.Module) -> list[str]:
    names = [str(name) for name in module.exports or [] if name in module.attributes]
    if not names:
        return []
    values = vars(importlib.import_module(module.path))
    return [name for name in names if inspect.isfunction(values[name])]
