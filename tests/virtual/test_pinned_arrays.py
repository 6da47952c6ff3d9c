"""Pinned memory through NumPy's arrays, memoryviews and files: each use is told at its own line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamsan.record import core_is_compiled
from tests.virtual.programs import Done, Programs

pytestmark = pytest.mark.skipif(not core_is_compiled(), reason="the core is not compiled here")

HEAD = """
import array, ctypes, hashlib, io, os, pickle, struct, sys, tempfile
import numpy as np
import torch
SIZE = 256
values, other = torch.ones(SIZE, device="cuda"), np.full(SIZE, 0.5, np.float32)
side = torch.cuda.Stream()
path = os.path.join(tempfile.mkdtemp(), "file")
file = open(path + "2", "wb", buffering=0)
def ready():
    torch.cuda.synchronize()
    host = torch.zeros(SIZE, pin_memory=True)
    return host, host.numpy()
def download(host):
    with torch.cuda.stream(side):
        host.copy_(values, non_blocking=True)
def upload(host):
    with torch.cuda.stream(side):
        values.copy_(host, non_blocking=True)
"""

READS = """
view.mean()
view[3] + view[-1]
view[[1, 5]]
view[other > 0]
for value in view[:2]: float(value)
bytes(view)
memoryview(view)[0]
list(memoryview(view)[:3])
view.tolist()
other + view
np.concatenate([other, view])
np.array(view)
np.asarray(host).std()
np.from_dlpack(host).max()
np.frombuffer(view, np.float32).sum()
np.linalg.norm(view)
np.multiply.outer(other, view)
np.add.accumulate(view)
np.fft.fft(view)
np.einsum("i,i", other, view)
np.save(path, view)
str(view)
float(view[:1].reshape(()))
file.write(view)
io.BytesIO().write(view)
hashlib.sha256(view)
struct.unpack_from("f", view)
array.array("f", view)
pickle.dumps(view)
torch.from_numpy(view).sum()
torch.tensor(view)
torch.frombuffer(view, dtype=torch.float32).sum()
host.tolist()
host[0].item()
str(host)
host.untyped_storage()[1]
host.storage()[1]
torch.save(host, path)
torch.save(host, io.BytesIO())
torch.save(host, path, _use_new_zipfile_serialization=False)
pickle.dumps(host)
"""

NO_READS = """
view[3:5]
view.reshape(2, -1).T
np.asarray(view)
memoryview(view)[2:]
np.frombuffer(view, np.float32)
torch.from_numpy(view)
torch.frombuffer(view, dtype=torch.float32)
view.astype(np.float32, copy=False)
view.ctypes.data
np.empty_like(view)
len(view)
other.sum()
"""

WRITES = """
view[3] = 2.0
view += 1
view[other < 1] = 3.0
view.fill(2.0)
np.copyto(view, other)
np.add(other, 3.0, out=view)
memoryview(view)[0] = 9.0
torch.from_numpy(view).add_(1)
host.untyped_storage()[1] = 7
"""

UNSEEN_WRITES = """
np.random.default_rng(0).random(out=view, dtype=np.float32)
view.flat[3] = 7
view.put([1], 3.0)
ctypes.memset(view.ctypes.data, 1, 4)
io.BytesIO(b"abcdefgh").readinto(view)
struct.pack_into("f", view, 0, 3.5)
"""
"""Told at the line of the array."""


def program(start: str, lines: str, wait: bool = False) -> tuple[str, list[int]]:
    """A program that does each of `lines` while a copy is under way, or behind it; and where."""
    text = HEAD.strip().splitlines()
    places = []
    for line in lines.strip().splitlines():
        text += ["host, view = ready()", f"{start}(host)"]
        text += ["side.synchronize()"] if wait else []
        text.append(line)
        places.append(len(text))
    return "\n".join([*text, "torch.cuda.synchronize()", ""]), places


def second_lines(done: Done) -> Sequence[int]:
    assert not done.errors
    return sorted({race["second"]["site"]["line"] for race in done.races})


@pytest.mark.parametrize(("start", "lines"), [("download", READS), ("upload", WRITES)])
def test_each_use_is_a_race_at_its_line(programs: Programs, start: str, lines: str) -> None:
    text, places = program(start, lines)
    assert second_lines(programs.run(text)) == places


@pytest.mark.parametrize(
    ("start", "lines"),
    [("download", READS), ("download", WRITES), ("upload", WRITES), ("upload", UNSEEN_WRITES)],
)
def test_none_is_behind_a_wait(programs: Programs, start: str, lines: str) -> None:
    done = programs.run(program(start, lines, wait=True)[0])
    assert (done.races, done.report["possible"], done.errors, done.status) == ([], [], [], 0)


def test_views_are_no_reads(programs: Programs) -> None:
    done = programs.run(program("download", NO_READS)[0])
    assert (done.races, done.errors, done.status) == ([], [], 0)


def test_writes_that_nobody_tells_are_told_at_the_line_of_the_array(programs: Programs) -> None:
    text, places = program("upload", UNSEEN_WRITES)
    found = programs.run(text)
    made = text.splitlines().index("    return host, host.numpy()") + 1
    assert second_lines(found) == [made]
    assert found.races[0]["count"] == len(places)


def test_reads_by_threads_are_theirs(programs: Programs) -> None:
    text = (
        HEAD
        + """
import threading
host, view = ready()
download(host)
side.synchronize()
reader = threading.Thread(target=lambda: view.sum())
reader.start()
reader.join()
print(view.sum())
host, view = ready()
download(host)
reader = threading.Thread(target=lambda: view.sum(), name="reader")
reader.start()
reader.join()
side.synchronize()
"""
    )
    done = programs.run(text.lstrip())
    assert done.stdout == f"{256.0}\n"
    assert [race["second"]["thread"] for race in done.races] == ["reader"]
