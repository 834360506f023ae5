"""The web page made with the gradio package: ``lmdeploy serve gradio``."""
