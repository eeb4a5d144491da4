"""Policies, which decide which sub-model trains next, and a simulator."""
