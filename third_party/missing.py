"""Print the requirements of the named files (beside this one) that the running interpreter does not meet."""

import importlib.metadata
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement  # pip is there; packaging may not be


def is_met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(importlib.metadata.version(requirement.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


for name in sys.argv[1:]:
    for line in (Path(__file__).parent / name).read_text().splitlines():
        text = line.split("#")[0].strip()
        if text and not is_met(Requirement(text)):
            print(text)
