"""Constants of vision prompts."""

IMAGE_TOKEN = "<IMAGE_TOKEN>"
