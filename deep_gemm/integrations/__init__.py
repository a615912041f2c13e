"""Other programs that multiply by this library: `transformers` and `vllm`, a module each, imported by name.

Nothing here is imported by `import deep_gemm`, and nothing of theirs is until it is asked for.
"""
