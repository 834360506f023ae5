"""``python -m lmdeploy.serve.openai.api_server MODEL`` is ``lmdeploy serve api_server MODEL``."""
from ..._entry import run_command

if __name__ == "__main__":
    run_command("serve", "api_server")
