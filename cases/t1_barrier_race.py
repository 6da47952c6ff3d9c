"""An uploader meets the augmenter at a barrier before its upload is synchronized.

rule: T1, H1
kind: R09-H2D-SRC-WRITE
verdict: race
source: Python documentation, threading (Barrier)
twin: t1_barrier_clean
why: behind the barrier the augmenter refills images while the upload may still read them.
"""

import threading

import torch

IMAGES, PIXELS = 4, 4096


def augment(images: torch.Tensor, uploaded: threading.Barrier) -> None:
    uploaded.wait()
    images.neg_()  # RACE a


def main() -> None:
    images = torch.ones(IMAGES, PIXELS, pin_memory=True)
    device_images = torch.zeros(IMAGES, PIXELS, device="cuda")
    uploaded = threading.Barrier(2)
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    augmenter = threading.Thread(target=augment, args=(images, uploaded))
    augmenter.start()
    with torch.cuda.stream(upload_stream):
        device_images.copy_(images, non_blocking=True)  # RACE a
    uploaded.wait()
    upload_stream.synchronize()
    augmenter.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
