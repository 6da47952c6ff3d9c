"""All lists, in the order of the table."""

from __future__ import annotations

from tests.peers.cusan import CUSAN
from tests.peers.cusan_tests import CUSAN_TESTS
from tests.peers.npu import TORCH_NPU
from tests.peers.pytorch import PYTORCH

LISTS = [PYTORCH, TORCH_NPU, CUSAN, CUSAN_TESTS]
