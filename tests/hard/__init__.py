"""Inputs that mean harm, and programs that go on for ever: nothing breaks, nothing grows."""
