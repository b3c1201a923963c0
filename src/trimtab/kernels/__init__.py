"""Compiled kernels: arrays in, arrays out, one algorithm a file; `reference` is to be read."""
