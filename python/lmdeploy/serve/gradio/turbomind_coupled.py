"""run_local comes with the web page, which this version does not have."""
raise ImportError("lmdeploy.serve.gradio.turbomind_coupled is not there yet: it comes with `lmdeploy serve gradio`. "
                  "Use `lmdeploy chat` or lmdeploy.pipeline().", name=__name__)
