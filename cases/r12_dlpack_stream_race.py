"""An exporter is told not to synchronize, and the importer reads on its own stream.

rule: E2
kind: R12-INTEROP
verdict: race
source: Python array API standard, __dlpack__
twin: r12_dlpack_stream_clean
why: stream -1 asks for no order, so the import stream reads before the default stream wrote.
"""

import torch
from torch.utils.dlpack import from_dlpack

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    features = torch.randn(SIZE, device="cuda")
    decoded = torch.empty(SIZE, device="cuda")
    import_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    features.mul_(2.0)  # RACE a
    capsule = features.__dlpack__(stream=-1)
    with torch.cuda.stream(import_stream):
        imported = from_dlpack(capsule)
        torch.neg(imported, out=decoded)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
