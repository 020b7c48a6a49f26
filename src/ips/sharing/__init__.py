"""Share a trained model: a folder that anyone can load, with a model card, or the hub."""

from ips.errors import require

require("jinja2", "huggingface_hub")

from ips.loading import load as from_pretrained
from ips.sharing.pretrained import push_to_hub, save_pretrained

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]
