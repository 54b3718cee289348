"""Features and labels of any nn.Module: one forward pass, every layer."""

from nclab.features.classifier import AUTO, ClassifierChoice
from nclab.features.evaluation import unwrap
from nclab.features.head_output import Classifier
from nclab.features.labels import LabelChoice
from nclab.features.pooling import NoRows, Pool

__all__ = ["AUTO", "Classifier", "ClassifierChoice", "LabelChoice", "NoRows", "Pool", "unwrap"]
