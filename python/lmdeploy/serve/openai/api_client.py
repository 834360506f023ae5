"""APIClient comes with the server, which this version does not have."""
raise ImportError("lmdeploy.serve.openai.api_client is not there yet: it comes with `lmdeploy serve api_server`. Use "
                  "lmdeploy.pipeline() for answers in this process, or an OpenAI client for a server.", name=__name__)
