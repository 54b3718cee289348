"""Networks to train: the multi-layer perceptron of pan2023 and VGG-13."""

from nclab.training.models.mlp import MLP, Activation, Norm, Shape
from nclab.training.models.vgg import VGG13, VGGShape, vgg13

__all__ = ["MLP", "VGG13", "Activation", "Norm", "Shape", "VGGShape", "vgg13"]
