"""Screens own keys; widgets own pixels."""
