"""Whether wandb would find a key: asked here, since wandb.init would ask the terminal, and wandb.login the network."""

from __future__ import annotations

import netrc
import os
from urllib.parse import urlparse


def key_is_set(base_url: str) -> bool:
    """Whether the environment or netrc holds credentials for the server at base_url; the key itself is not kept."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    try:
        known = netrc.netrc(os.environ.get("NETRC"))
    except (OSError, netrc.NetrcParseError):
        return False
    return known.authenticators(urlparse(base_url).hostname or "") is not None
