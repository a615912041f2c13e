"""The one place that states the version; setup.py and `deep_gemm.__version__` read it."""

__version__ = "0.1.0"
