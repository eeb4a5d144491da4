"""torch's LR schedulers, common ones first."""

from dataclasses import replace

from unifiednn_core.spec.choice import Argument, LRSchedulerChoice, flag, integer, number, word


def _needed(argument: Argument) -> Argument:
    return replace(argument, required=True)


_GAMMA = number("gamma", 0.1, least=0)
_ETA_MIN = number("eta_min", 0.0, least=0)
_MOMENTA = (number("base_momentum", 0.85, least=0, below=1), number("max_momentum", 0.95, least=0, below=1))

LR_SCHEDULERS: dict[str, LRSchedulerChoice] = {
    "cosine": LRSchedulerChoice(
        "CosineAnnealingLR",
        (_needed(integer("T_max")), _ETA_MIN),
        "A half cosine down to eta_min.",
        span="T_max",
        afterwards="rises",
    ),
    "step": LRSchedulerChoice(
        "StepLR",
        (_needed(integer("step_size")), _GAMMA),
        "Times gamma every step_size epochs.",
        first_change="step_size",
    ),
    "multi_step": LRSchedulerChoice(
        "MultiStepLR",
        (_needed(Argument(name="milestones", kind="integers", least=1)), _GAMMA),
        "Times gamma at each milestone.",
        first_change="milestones",
    ),
    "exponential": LRSchedulerChoice("ExponentialLR", (_needed(number("gamma", least=0)),), "Times gamma every epoch."),
    "linear": LRSchedulerChoice(
        "LinearLR",
        (
            number("start_factor", 1 / 3, above=0, most=1),
            number("end_factor", 1.0, least=0, most=1),
            integer("total_iters", 5),
        ),
        "A line between two factors.",
    ),
    "one_cycle": LRSchedulerChoice(
        "OneCycleLR",
        (
            _needed(number("max_lr", above=0)),
            _needed(integer("total_steps")),
            number("pct_start", 0.3, above=0, below=1),
            word("anneal_strategy", "cos", "cos", "linear"),
            flag("cycle_momentum", default=True),
            *_MOMENTA,
            number("div_factor", 25.0, above=0),
            number("final_div_factor", 1e4, above=0),
            flag("three_phase"),
        ),
        "Up to max_lr and down once, after every step. It replaces the learning rate.",
        per="step",
        span="total_steps",
        afterwards="fails",
    ),
    "reduce_on_plateau": LRSchedulerChoice(
        "ReduceLROnPlateau",
        (
            number("factor", 0.1, above=0, below=1),
            integer("patience", 10, least=0),
            number("threshold", 1e-4, least=0),
            word("threshold_mode", "rel", "rel", "abs"),
            integer("cooldown", 0, least=0),
            number("min_lr", 0, least=0),
            number("eps", 1e-8, least=0),
        ),
        "Times factor when the test loss (without test data: the training loss) has not improved for some epochs.",
        per="epoch",
        first_change="patience",
        measured=True,
    ),
    "constant": LRSchedulerChoice(
        "ConstantLR",
        (number("factor", 1 / 3, least=0, most=1), integer("total_iters", 5)),
        "Times factor for the first total_iters epochs.",
    ),
    "cosine_warm_restarts": LRSchedulerChoice(
        "CosineAnnealingWarmRestarts",
        (_needed(integer("T_0")), integer("T_mult", 1), _ETA_MIN),
        "A half cosine down that starts again, each time T_mult times as long.",
    ),
    "cyclic": LRSchedulerChoice(
        "CyclicLR",
        (
            _needed(number("base_lr", above=0)),
            _needed(number("max_lr", above=0)),
            integer("step_size_up", 2000),
            integer("step_size_down", optional=True),
            word("mode", "triangular", "triangular", "triangular2", "exp_range"),
            number("gamma", 1.0, above=0),
            word("scale_mode", "cycle", "cycle", "iterations"),
            flag("cycle_momentum", default=True),
            number("base_momentum", 0.8, least=0, below=1),
            number("max_momentum", 0.9, least=0, below=1),
        ),
        "Up and down between base_lr and max_lr, after every step. It replaces the learning rate.",
        per="step",
    ),
    "polynomial": LRSchedulerChoice(
        "PolynomialLR",
        (integer("total_iters", 5), number("power", 1.0, least=0)),
        "Down to zero by a power of the remaining share of total_iters.",
    ),
}
REFUSED_LR_SCHEDULERS = {
    "ChainedScheduler": "combines other LR schedulers; name one of them, and use warm_up for a gentle start",
    "LambdaLR": "needs a function, and a spec cannot hold code",
    "MultiplicativeLR": "needs a function, and a spec cannot hold code",
    "SequentialLR": "combines other LR schedulers; name one of them, and use warm_up for a gentle start",
}
