"""Networks for images and points: one for each file of its repository, in a small size."""

from typing import Any

from tools.public_networks.networks import Network, Source

PYTORCH_CIFAR = Source("kuangliu/pytorch-cifar", "49b7aa97b0c12fe0d4054e670403a16b6b834ddd")
PYTORCH_CIFAR100 = Source("weiaicunzai/pytorch-cifar100", "11d8418f415b261e4ae3cb1ffe20d06ec95b98e4")
RESNET_CIFAR10 = Source("akamaster/pytorch_resnet_cifar10", "d5489e8995e81e91ce6b1d69dcc98ad579b0b153")
UNET = Source("milesial/Pytorch-UNet", "21d7850f2af30a9695bbeea75f3136aa538cfc4a")
POINTNET = Source("fxia22/pointnet.pytorch", "bafbf401e0af19be3262e448c59313fd2be0e421")
TIMM, TORCHVISION = Source("timm"), Source("torchvision")
_IMAGE = ("3,32,32",)

_CIFAR: dict[str, dict[str, Any]] = {
    "densenet:densenet_cifar": {},
    "dla:DLA": {},
    "dla_simple:SimpleDLA": {},
    "dpn:DPN26": {},
    "efficientnet:EfficientNetB0": {},
    "googlenet:GoogLeNet": {},
    "lenet:LeNet": {},
    "mobilenet:MobileNet": {},
    "mobilenetv2:MobileNetV2": {},
    "pnasnet:PNASNetA": {},
    "preact_resnet:PreActResNet18": {},
    "regnet:RegNetX_200MF": {},
    "resnet:ResNet18": {},
    "resnext:ResNeXt29_2x64d": {},
    "senet:SENet18": {},
    "shufflenet:ShuffleNetG2": {},
    "shufflenetv2:ShuffleNetV2": {"net_size": 0.5},
    "vgg:VGG": {"vgg_name": "VGG11"},
}
_CIFAR100: dict[str, dict[str, Any]] = {
    "attention:attention56": {},
    "densenet:densenet121": {},
    "googlenet:googlenet": {},
    "inceptionv3:inceptionv3": {},
    "inceptionv4:inceptionv4": {},
    "mobilenet:mobilenet": {"alpha": 0.5},
    "mobilenetv2:mobilenetv2": {},
    "nasnet:nasnet": {},
    "preactresnet:preactresnet18": {},
    "resnet:resnet18": {},
    "resnext:resnext50": {},
    "rir:resnet_in_resnet": {},
    "senet:seresnet18": {},
    "shufflenet:shufflenet": {},
    "shufflenetv2:shufflenetv2": {},
    "squeezenet:squeezenet": {},
    "stochasticdepth:stochastic_depth_resnet18": {},
    "vgg:vgg11_bn": {},
    "wideresidual:wideresnet": {"depth": 16, "widen_factor": 1},
    "xception:xception": {},
}
_TIMM: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "mobilenetv3_small_050": {},
    "efficientnet_b0": {},
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "deit_tiny_patch16_224": {"img_size": 32, "depth": 2, "drop_path_rate": 0.1},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "depths": [1, 1, 1, 1], "embed_dim": 24},
    "convnext_atto": {"drop_path_rate": 0.1},
    "mixer_s32_224": {"img_size": 32},
    "repvgg_a0": {},
    "ghostnet_050": {},
}
_TORCHVISION: dict[str, tuple[int, dict[str, Any]]] = {
    "alexnet": (64, {}),
    "squeezenet1_1": (64, {}),
    "resnet18": (32, {}),
    "googlenet": (64, {"init_weights": False}),
    "mobilenet_v2": (32, {}),
    "mobilenet_v3_small": (32, {}),
    "shufflenet_v2_x0_5": (32, {}),
    "mnasnet0_5": (32, {}),
    "regnet_y_400mf": (32, {}),
    "vit_b_16": (32, {"image_size": 32}),
    "swin_t": (64, {}),
    "segmentation.lraspp_mobilenet_v3_large": (64, {"weights_backbone": None}),
    "video.r3d_18": (16, {}),
}


def _torchvision(name: str, size: int, arguments: dict[str, Any]) -> Network:
    module, _, factory = f"torchvision.models.{name}".rpartition(".")
    shape = f"3,4,{size},{size}" if module.endswith("video") else f"3,{size},{size}"
    return Network(TORCHVISION, f"{module}:{factory}", (shape,), arguments)


NETWORKS = (
    *(Network(PYTORCH_CIFAR, f"models/{place.replace(':', '.py:')}", _IMAGE, args) for place, args in _CIFAR.items()),
    *(
        Network(PYTORCH_CIFAR100, f"models/{place.replace(':', '.py:')}", _IMAGE, args)
        for place, args in _CIFAR100.items()
    ),
    Network(RESNET_CIFAR10, "resnet.py:resnet20", _IMAGE),
    Network(UNET, "unet/unet_model.py:UNet", _IMAGE, {"n_channels": 3, "n_classes": 2}),
    Network(UNET, "unet:UNet", _IMAGE, {"n_channels": 3, "n_classes": 2, "bilinear": True}, title="unet:UNet bilinear"),
    Network(POINTNET, "pointnet/model.py:PointNetCls", ("3,32",), {"k": 5, "feature_transform": True}),
    Network(POINTNET, "pointnet/model.py:PointNetDenseCls", ("3,32",), {"k": 3}),
    *(
        Network(
            TIMM,
            "timm:create_model",
            ("3,56,56",) if "swin" in name else ("3,64,64",) if name == "ghostnet_050" else _IMAGE,
            {"model_name": name, "num_classes": 10, **args},
            title=name,
        )
        for name, args in _TIMM.items()
    ),
    *(_torchvision(name, size, args) for name, (size, args) in _TORCHVISION.items()),
)
