#!/usr/bin/env python3
"""Writes the shape lists beside this file from the networks' public architectures.

    bench/models/make.py            write every list
    bench/models/make.py resnet50   print one

One line per trainable tensor, first layer first: "<elements> <name> <shape>".
"""
import math
import pathlib
import sys

# What the lists must add up to, in elements: the parameter counts known for these networks.
TOTALS = {
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "bert-base": 109_482_240,
    "bulk-400mb": 100_000_000,
    "tiny": 70_660,
}


def resnet50():
    """He et al. 2015, bottleneck form, 1000 classes; convolutions without bias, as each is followed
    by a batch norm."""
    def convolution(name, out_channels, in_channels, kernel):
        yield f"{name}.weight", (out_channels, in_channels, kernel, kernel)
        yield f"{name}.norm.gamma", (out_channels,)
        yield f"{name}.norm.beta", (out_channels,)

    yield from convolution("stem", 64, 3, 7)
    channels = 64
    for stage, (units, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 1):
        for unit in range(1, units + 1):
            name = f"stage{stage}.unit{unit}"
            yield from convolution(f"{name}.reduce", width, channels, 1)
            yield from convolution(f"{name}.spatial", width, width, 3)
            yield from convolution(f"{name}.expand", 4 * width, width, 1)
            if unit == 1:
                yield from convolution(f"{name}.shortcut", 4 * width, channels, 1)
            channels = 4 * width
    yield "classifier.weight", (1000, channels)
    yield "classifier.bias", (1000,)


def vgg16():
    """Simonyan and Zisserman 2014, configuration D, 1000 classes."""
    channels = 3
    for block, (layers, width) in enumerate([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)], 1):
        for layer in range(1, layers + 1):
            yield f"block{block}.conv{layer}.weight", (width, channels, 3, 3)
            yield f"block{block}.conv{layer}.bias", (width,)
            channels = width
    inputs = channels * 7 * 7
    for layer, outputs in enumerate([4096, 4096, 1000], 1):
        yield f"dense{layer}.weight", (outputs, inputs)
        yield f"dense{layer}.bias", (outputs,)
        inputs = outputs


def bert_base():
    """Devlin et al. 2018, uncased vocabulary, 12 layers of width 768, with pooler, no heads."""
    width, inner, vocabulary, positions, segments = 768, 3072, 30522, 512, 2

    def dense(name, outputs, inputs):
        yield f"{name}.weight", (outputs, inputs)
        yield f"{name}.bias", (outputs,)

    def norm(name):
        yield f"{name}.gamma", (width,)
        yield f"{name}.beta", (width,)

    yield "embedding.word.weight", (vocabulary, width)
    yield "embedding.position.weight", (positions, width)
    yield "embedding.segment.weight", (segments, width)
    yield from norm("embedding.norm")
    for layer in range(12):
        name = f"layer{layer}"
        for part in ("query", "key", "value", "output"):
            yield from dense(f"{name}.attention.{part}", width, width)
        yield from norm(f"{name}.attention.norm")
        yield from dense(f"{name}.feed_forward.inner", inner, width)
        yield from dense(f"{name}.feed_forward.output", width, inner)
        yield from norm(f"{name}.feed_forward.norm")
    yield from dense("pooler", width, width)


def bulk_400mb():
    """No network: 400 MB in 100 equal tensors, for comparing transports by sheer volume."""
    for index in range(100):
        yield f"tensor{index:02d}", (1_000_000,)


def tiny():
    """No network: next to no work, in sizes that are seldom tried otherwise."""
    for index, elements in enumerate([1, 3, 1021, 4099, 65536]):
        yield f"tensor{index}", (elements,)


MODELS = {"resnet50": resnet50, "vgg16": vgg16, "bert-base": bert_base, "bulk-400mb": bulk_400mb,
          "tiny": tiny}


def lines(model):
    return [f"{math.prod(shape)} {name} {'x'.join(map(str, shape))}\n"
            for name, shape in MODELS[model]()]


def main():
    if len(sys.argv) > 1:
        sys.stdout.writelines(lines(sys.argv[1]))
        return
    here = pathlib.Path(__file__).resolve().parent
    for model in MODELS:
        (here / f"{model}.txt").write_text("".join(lines(model)), encoding="ascii")


if __name__ == "__main__":
    main()
