"""Tests of StreamSan: unit, quality (labelled programs), repo (rules of this repository)."""
