"""A server whose every send time is known: the ruler that the client is measured with."""
