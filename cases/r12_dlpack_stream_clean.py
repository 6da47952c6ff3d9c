"""An exporter is told the stream of its importer.

rule: E2
kind: R12-INTEROP
verdict: clean
source: Python array API standard, __dlpack__
twin: r12_dlpack_stream_race
why: the exporter makes the named stream wait for the current one.
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

    features.mul_(2.0)
    capsule = features.__dlpack__(stream=import_stream.cuda_stream)
    with torch.cuda.stream(import_stream):
        imported = from_dlpack(capsule)
        torch.neg(imported, out=decoded)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
