"""Races do what they do on hardware: under some schedule a value is wrong; in program order none.

The programs are labelled ones whose twin, with the order put in, ends with the right values.
"""

from __future__ import annotations

import pytest

from tests.virtual import values

RACES = [
    ("c1_source_rewrite", "late", "device_prompt"),
    ("c3_sampling_parameters", "hold:default", "logits"),
    ("c4_pageable_source", "late", "device_rows"),
    ("c5_snapshot_on_device", "late", "snapshot"),
    ("c7_swap_out", "late", "host_page"),
    ("d1_blocking_stream", "late", "shifted"),
    ("e1_two_layer_cache", "late", "attention"),
    ("e2_stale_version", "late", "output"),
    ("g3_output_dropped", "hold:default", "snapshot"),
    ("m1_page_reuse", "late", "host_page"),
    ("m2_mark_early", "late", "output"),
    ("m5_pinned_batches", "hold:default", "total"),
    ("r12_dlpack_stream", "hold:default", "decoded"),
    ("r14_planned_buffer", "late", "auxiliary"),
    ("s1_loader_thread", "hold:default", "doubled"),
    ("t1_semaphore", "late", "batch"),
]
"""Program, schedule under which its race bites, and the variable that shows it."""


@pytest.mark.parametrize(("name", "schedule", "variable"), RACES)
def test_a_race_bites_under_a_schedule_and_not_in_program_order(
    name: str, schedule: str, variable: str
) -> None:
    right = values.of(f"{name}_clean", schedule)[variable]
    assert values.of(f"{name}_race", "program")[variable] == right
    assert values.of(f"{name}_race", schedule)[variable] != right


@pytest.mark.parametrize("name", [name for name, _, _ in RACES])
def test_a_clean_program_gets_the_same_values_under_every_schedule(name: str) -> None:
    wanted = values.of(f"{name}_clean", "program")
    assert wanted
    for schedule in ("late", "hold:default", "random:1", "random:2"):
        assert values.of(f"{name}_clean", schedule) == wanted, schedule
