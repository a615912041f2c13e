"""`python -m deep_gemm COMMAND`: a file a command. Each is `run(arguments, output)` and returns the exit status."""
