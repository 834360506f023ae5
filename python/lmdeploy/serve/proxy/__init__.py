"""The request distributor: a native program, ``lmdeploy serve proxy``."""
