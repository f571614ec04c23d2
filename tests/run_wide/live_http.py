"""The HTTP client of the tests that talk to real processes.

One, since to make one (its TLS context) costs more CPU than many requests; a connection per request, as if each came from elsewhere.
"""

import httpx

HTTP = httpx.Client(trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0))
