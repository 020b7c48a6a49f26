"""Parts of networks: encoders, aggregators, position encoding, heads."""

from ips.nn.attention import (
    Aggregated,
    Aggregator,
    CrossAttention,
    CrossAttentionTransformer,
    GatedAttention,
    sinusoidal_position,
)
from ips.nn.build import BuiltEncoder, build_encoder
from ips.nn.efficientnet import EfficientNetLite
from ips.nn.embedding import evaluating
from ips.nn.encoders import ENCODERS, FeatureProjector, ResNet, resnet18, resnet50, thin_resnet
from ips.nn.heads import Head, PatchLead, PatchReadout

__all__ = [
    "ENCODERS",
    "Aggregated",
    "Aggregator",
    "BuiltEncoder",
    "CrossAttention",
    "CrossAttentionTransformer",
    "EfficientNetLite",
    "FeatureProjector",
    "GatedAttention",
    "Head",
    "PatchLead",
    "PatchReadout",
    "ResNet",
    "build_encoder",
    "evaluating",
    "resnet18",
    "resnet50",
    "sinusoidal_position",
    "thin_resnet",
]
