"""Law 2: what was not seen, or was cut, is said in the report."""

from __future__ import annotations

import os
import sys

import pytest

from tests.virtual.programs import Programs

HEAD = "import os, sys\nimport torch\nx = torch.ones(3, device='cuda')\n"
ALWAYS = (
    "reads and writes of host memory other than pinned memory, and reads of pinned memory by"
    " code that has nothing but its address"
)

FORGOTTEN = (
    "66 older uses were forgotten: more than 256 lines of the program used the same bytes on one"
    " stream with no wait of the host in between"
)
SPOTS = {
    "none": ("", []),
    "array that lives on": (
        "host = torch.ones(3).pin_memory()\narray = host.numpy()\narray.sum()",
        [],  # it is in what every report says
    ),
    "compiler": (
        "torch.compile(lambda x: x + 1)(x)",
        ["torch.compile ran eagerly on the virtual GPU: the compiler's kernels were not checked"],
    ),
    "other programs": (
        """
import subprocess
for _ in range(2): subprocess.run([sys.executable, "-c", ""])
os.system("true a b")
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}), 0)
""",
        [
            "another program was started and not recorded: {python}",
            "another program was started and not recorded: true",
            "another program was started and not recorded: sh",
        ],
    ),
    "fork": ("child = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)", []),
    "shadow": (
        "side = torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(side):\n" + "    x.add_(1)\n" * 300,
        [FORGOTTEN],
    ),
    "deep stack": (
        "def down(depth):\n    down(depth - 1) if depth else x.add_(1)\ndown(150)",
        ["callers beyond the innermost 100 frames"],
    ),
}


@pytest.mark.parametrize("name", SPOTS)
def test_what_was_not_seen(programs: Programs, name: str) -> None:
    text, expected = SPOTS[name]
    done = programs.run(HEAD + text + "\n")
    assert (done.status, done.errors) == (0, [])
    expected = [spot.format(python=os.path.basename(sys.executable)) for spot in expected]
    assert sorted(done.report["summary"]["blind_spots"]) == sorted([*expected, ALWAYS])


def test_a_child_that_can_use_the_gpu(programs: Programs) -> None:
    text = """
        import multiprocessing, os
        import torch
        def work():
            print(torch.ones(3).sum().item(), flush=True)
        if __name__ == "__main__":
            child = os.fork()
            if not child:
                torch.ones(3, device="cuda")
                os._exit(0)
            os.waitpid(child, 0)
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
        """
    done = programs.run(text)
    assert (done.status, done.stdout) == (0, "3.0\n")
    assert "a child process was forked before the GPU was used" in done.blind_spots
    assert "a child process of multiprocessing (spawn) was started" in done.blind_spots


def test_a_line_below_a_hundred_library_frames(programs: Programs) -> None:
    programs.write(
        "def down(depth, call):\n    down(depth - 1, call) if depth else call()\n", "deep.py"
    )
    text = f"""
        from functools import partial
        import torch
        side = torch.cuda.Stream()
        x = torch.ones(3, device="cuda")
        torch.cuda.synchronize()
        scope = {{}}
        text = open({str(programs.folder / "deep.py")!r}).read()
        exec(compile(text, torch.__file__, "exec"), scope)  # as if torch did it
        with torch.cuda.stream(side):
            scope["down"](150, partial(x.add_, 1))
        scope["down"](150, partial(x.add_, 2))
        """
    done = programs.run(text)
    assert done.lines == [(10, 11)]
    *library, own = done.races[0]["second"]["stack"]
    assert (len(library), {site["file"] for site in library}) == (100, {"torch/__init__.py"})
    assert (own["file"], own["line"]) == (str(programs.folder / "program.py"), 11)
