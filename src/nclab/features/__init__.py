"""Features and labels of any nn.Module, for every layer, from one forward pass."""

from nclab.features.batches import LabelChoice
from nclab.features.classifier import AUTO, ClassifierChoice
from nclab.features.head_output import Classifier
from nclab.features.pooling import NoRows, Pool
from nclab.features.recorder import unwrap

__all__ = ["AUTO", "Classifier", "ClassifierChoice", "LabelChoice", "NoRows", "Pool", "unwrap"]
