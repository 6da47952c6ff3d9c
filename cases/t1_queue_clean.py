"""Logits are queued for a tokenizer thread after their download is synchronized.

rule: T1, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: Python documentation, queue (Queue.put, Queue.get)
twin: t1_queue_race
why: the queue hands the host's order with the copy stream to the tokenizer thread.
"""

import queue
import threading

import torch

TOKENS, VOCABULARY = 8, 4096


def tokenize(pages: queue.Queue[torch.Tensor], tokens: list[int]) -> None:
    for _ in range(TOKENS):
        page = pages.get()
        tokens.append(int(page.argmax()))


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
            host_logits[step].copy_(logits[step], non_blocking=True)
        copy_stream.synchronize()
        pages.put(host_logits[step])
    tokenizer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
