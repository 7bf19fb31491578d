"""Facing people and pipes."""
