"""What all layers speak of: records of a run, extents of memory, findings. Imports no layer."""
