"""The driver-level recorder: launches and copies of other libraries, from CUPTI's callbacks.

`_library` loads CUPTI and subscribes, `_recorder` makes records of the calls it shows.
"""
