"""The executable specification: what SPEC.md says, in numpy float32.

Imports nothing but the standard library and numpy.
"""
