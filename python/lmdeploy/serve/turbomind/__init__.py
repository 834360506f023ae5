"""Clients of Triton servers, as LMDeploy up to 0.4 had them."""
