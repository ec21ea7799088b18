"""Asking hooks: the transport to the endpoint and the threads for hooks in process."""
