"""The GPU that kernels are compiled for and chosen for where no device is there to be asked."""

HOPPER_TARGET = "sm_90a"
HOPPER_SMS = 132  # of an H100 or H200 in its SXM form
