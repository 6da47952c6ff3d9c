"""Programs that notice what is done to them: what they print is the same with StreamSan as without.

Each takes a device, ``cpu`` or ``cuda``, and prints nothing that depends on it. One with ``device:
cuda`` in its docstring needs a real GPU.
"""
