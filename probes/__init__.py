"""Asking nodes, and what the answers mean. Imports no Textual."""
