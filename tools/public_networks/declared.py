"""All networks that are tried, and what was left out on purpose."""

from tools.public_networks import huggingface, text, transformers_of_images, vision
from tools.public_networks.networks import Network, Source

NETWORKS: tuple[Network, ...] = (
    *vision.NETWORKS,
    *transformers_of_images.NETWORKS,
    *text.NETWORKS,
    *huggingface.NETWORKS,
)
SOURCES: tuple[Source, ...] = tuple(dict.fromkeys(network.source for network in NETWORKS))
LEFT_OUT = (
    "Other kinds of job: dcgan and the GAN of pytorch-tutorial (two optimizers), the four reinforcement learning"
    " scripts of pytorch/examples, mnist_forward_forward (trains its layers itself), fast_neural_style's vgg.py and"
    " EncoderCNN of pytorch-tutorial (weights that are downloaded), distributed/rpc and ddp (networks of two layers"
    " that show a protocol), fx.",
    "Of vit-pytorch the files that wrap, teach or record another network (dino, distill, es_vit, lejepa, mp3, mpp,"
    " extractor, recorder, accept_video_wrapper, learnable_memory_vit), robot policies of several networks (vat, vaat,"
    " vat_siglip), nested tensors, and those that need further packages (vit_nd_pope, vit_nd_rotary,"
    " vivit_with_moss, simple_vit_with_hyper_connections).",
    "Further sizes of one network: each file or class counts once. Of the packages timm, torchvision and transformers"
    " a choice by family, made before any of them was tried.",
)
