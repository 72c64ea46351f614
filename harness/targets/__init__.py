"""Targets: the one interface through which the harness drives a server, in process or over HTTP."""
