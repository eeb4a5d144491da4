"""What a hyper-parameter file may name: optimizers, criteria and LR schedulers, by torch's own names and arguments.

Forms, JSON validation and the trainer are all built from these tables. This room has no torch; a test holds the
tables against torch's signatures.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that can be named: its class in torch and the arguments that it takes."""

    torch_class: str
    """Name in `torch.optim`, `torch.nn` or `torch.optim.lr_scheduler`."""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    help: str = ""


OPTIMIZERS: dict[str, Choice] = {
    "sgd": Choice(
        "SGD",
        ("momentum", "dampening", "weight_decay", "nesterov", "maximize"),
        help="Stochastic gradient descent.",
    ),
    "adam": Choice("Adam", ("betas", "eps", "weight_decay", "amsgrad", "maximize"), help="Adam (Kingma and Ba 2015)."),
    "adamw": Choice(
        "AdamW",
        ("betas", "eps", "weight_decay", "amsgrad", "maximize"),
        help="Adam with decoupled weight decay (Loshchilov and Hutter 2019).",
    ),
    "rmsprop": Choice(
        "RMSprop",
        ("alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
        help="RMSprop (Hinton).",
    ),
    "adagrad": Choice(
        "Adagrad",
        ("lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"),
        help="Adagrad (Duchi et al. 2011).",
    ),
    "adadelta": Choice("Adadelta", ("rho", "eps", "weight_decay", "maximize"), help="Adadelta (Zeiler 2012)."),
    "nadam": Choice(
        "NAdam",
        ("betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay", "maximize"),
        help="Adam with Nesterov momentum (Dozat 2016).",
    ),
    "radam": Choice(
        "RAdam",
        ("betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize"),
        help="Rectified Adam (Liu et al. 2020).",
    ),
}

CRITERIA: dict[str, Choice] = {
    "cross_entropy": Choice("CrossEntropyLoss", ("label_smoothing",), help="Class scores against class numbers."),
    "nll": Choice("NLLLoss", help="Log-probabilities against class numbers."),
    "mse": Choice("MSELoss", help="Mean squared error."),
    "l1": Choice("L1Loss", help="Mean absolute error."),
    "huber": Choice("HuberLoss", ("delta",), help="Squared near zero, absolute beyond delta."),
    "bce_with_logits": Choice("BCEWithLogitsLoss", help="Yes/no scores against 0 and 1."),
}
# Criteria whose targets are class numbers, so that an accuracy exists.
CLASSIFICATION = frozenset({"cross_entropy", "nll"})

LR_SCHEDULERS: dict[str, Choice] = {
    "step": Choice("StepLR", ("step_size", "gamma"), ("step_size",), "Times gamma every step_size epochs."),
    "multi_step": Choice("MultiStepLR", ("milestones", "gamma"), ("milestones",), "Times gamma at each milestone."),
    "exponential": Choice("ExponentialLR", ("gamma",), ("gamma",), "Times gamma every epoch."),
    "cosine": Choice("CosineAnnealingLR", ("T_max", "eta_min"), ("T_max",), "A half cosine down to eta_min."),
    "linear": Choice("LinearLR", ("start_factor", "end_factor", "total_iters"), (), "A line between two factors."),
    "one_cycle": Choice(
        "OneCycleLR",
        (
            "max_lr",
            "total_steps",
            "pct_start",
            "anneal_strategy",
            "cycle_momentum",
            "base_momentum",
            "max_momentum",
            "div_factor",
            "final_div_factor",
            "three_phase",
        ),
        ("max_lr", "total_steps"),
        'Up and down once; use with "per": "step".',
    ),
}
