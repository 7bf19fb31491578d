"""Kubernetes through a real kubectl, against a stateful stand-in for the API server."""
