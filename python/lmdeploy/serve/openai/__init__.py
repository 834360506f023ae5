"""Clients of the OpenAI server."""
