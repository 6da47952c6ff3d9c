"""The virtual GPU: devices, streams, events and memory of a CUDA machine, on a machine without one.

`streamsan.virtual.gpu` is the machine (no framework in it); `streamsan.virtual.face` makes torch
believe in it. Work is queued by address and run when the schedule lets it, as on a device.
"""
