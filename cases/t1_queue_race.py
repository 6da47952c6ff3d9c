"""Logits are queued for a tokenizer thread before their download is synchronized.

rule: T1, H1
kind: R08-D2H-HOST-READ
verdict: race
source: Python documentation, queue (Queue.put, Queue.get)
twin: t1_queue_clean
why: the queue hands over what came before the put, and the synchronize comes after it.
"""

import queue
import threading

import torch

TOKENS, VOCABULARY = 8, 4096


def tokenize(pages: queue.Queue[torch.Tensor], tokens: list[int]) -> None:
    for _ in range(TOKENS):
        page = pages.get()
        tokens.append(int(page.argmax()))  # RACE a


def main() -> None:
    torch.manual_seed(0)
    logits = torch.rand(TOKENS, VOCABULARY, device="cuda")
    host_logits = torch.zeros(TOKENS, VOCABULARY, pin_memory=True)
    pages: queue.Queue[torch.Tensor] = queue.Queue()
    tokens: list[int] = []
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    tokenizer = threading.Thread(target=tokenize, args=(pages, tokens))
    tokenizer.start()
    for step in range(TOKENS):
        with torch.cuda.stream(copy_stream):
            host_logits[step].copy_(logits[step], non_blocking=True)  # RACE a
        pages.put(host_logits[step])
        copy_stream.synchronize()
    tokenizer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
