"""xdist's workers share the cores: torch has one thread in each, and in processes that they start.

Threads of OpenMP that wait for each other spin, which costs more than they save where others want the core. Set at
import: torch reads it at its own.
"""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
