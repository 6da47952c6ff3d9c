"""Fixtures of these tests."""

from tests.virtual.programs import programs, server

__all__ = ["programs", "server"]
