"""The one place that states the version. Wheels have the commit behind it (3.0.0+g0123abcd): setup.py writes it there.

It is above those of DeepGEMM, whose public API is served: clients compare it.
"""

__version__ = "3.0.0"
