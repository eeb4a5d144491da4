"""Optimizers, criteria and LR schedulers that a hyper-parameter file can name, with torch's own names and arguments.

Each has a short name and also goes by its class name: "adamw" is "AdamW"; common ones come first. Forms, JSON
validation, checks and the trainer all use these tables. They do not import torch; a test compares them with torch.
"""

from unifiednn_core.spec.choice import (
    Argument,
    Choice,
    CriterionChoice,
    LRSchedulerChoice,
    flag,
    integer,
    number,
    numbers,
    word,
)

_MAXIMIZE = flag("maximize")
_BETAS = numbers("betas", (0.9, 0.999), least=0, below=1)
_EPS = number("eps", 1e-8, least=0)
_DECAY = number("weight_decay", 0, least=0)
_DECOUPLED = flag("decoupled_weight_decay")
_WEIGHT = numbers("weight", least=0)
# Argument that holds the class index to leave out of loss and accuracy.
IGNORE_INDEX = "ignore_index"
_IGNORED = Argument("integer", IGNORE_INDEX, -100)
_GAMMA = number("gamma", 0.1, least=0)
_ETA_MIN = number("eta_min", 0.0, least=0)

# `lr` is not among the arguments: it is the entry learning_rate.
OPTIMIZERS: dict[str, Choice] = {
    "sgd": Choice(
        "SGD",
        (number("momentum", 0, least=0), number("dampening", 0), _DECAY, flag("nesterov"), _MAXIMIZE),
        "Stochastic gradient descent.",
    ),
    "adam": Choice(
        "Adam",
        (_BETAS, _EPS, _DECAY, flag("amsgrad"), _MAXIMIZE, _DECOUPLED),
        "Steps by running means of gradient and square (Kingma and Ba 2015).",
    ),
    "adamw": Choice(
        "AdamW",
        (_BETAS, _EPS, number("weight_decay", 0.01, least=0), flag("amsgrad"), _MAXIMIZE),
        "Adam with decoupled weight decay (Loshchilov and Hutter 2019).",
    ),
    "rmsprop": Choice(
        "RMSprop",
        (number("alpha", 0.99, least=0), _EPS, _DECAY, number("momentum", 0, least=0), flag("centered"), _MAXIMIZE),
        "Divides by a running mean of the gradient's size (Hinton).",
    ),
    "adagrad": Choice(
        "Adagrad",
        (
            number("lr_decay", 0, least=0),
            _DECAY,
            number("initial_accumulator_value", 0, least=0),
            number("eps", 1e-10, least=0),
            _MAXIMIZE,
        ),
        "For sparse features (Duchi et al. 2011).",
    ),
    "adadelta": Choice(
        "Adadelta",
        (number("rho", 0.9, least=0, most=1), number("eps", 1e-6, least=0), _DECAY, _MAXIMIZE),
        "Adagrad with a window (Zeiler 2012). Its usual learning rate is 1.",
    ),
    "adafactor": Choice(
        "Adafactor",
        (
            number("beta2_decay", -0.8, most=0),
            numbers("eps", (None, 1e-3), least=0),
            number("d", 1.0, least=1),
            number("weight_decay", 0.0, least=0),
            _MAXIMIZE,
        ),
        "Keeps only rows and columns of the second moment, to save memory (Shazeer and Stern 2018).",
    ),
    "adamax": Choice("Adamax", (_BETAS, _EPS, _DECAY, _MAXIMIZE), "Adam with the infinity norm (Kingma and Ba 2015)."),
    "asgd": Choice(
        "ASGD",
        (number("lambd", 1e-4), number("alpha", 0.75), number("t0", 1e6), _DECAY, _MAXIMIZE),
        "Averaged stochastic gradient descent (Polyak and Juditsky 1992).",
    ),
    "muon": Choice(
        "Muon",
        (
            number("weight_decay", 0.1, least=0),
            number("momentum", 0.95, least=0),
            flag("nesterov", default=True),
            numbers("ns_coefficients", (3.4445, -4.775, 2.0315)),
            number("eps", 1e-7, least=0),
            integer("ns_steps", 5),
            word("adjust_lr_fn", None, "original", "match_rms_adamw"),
        ),
        "Orthogonalised momentum (Jordan et al. 2024). For networks whose weights are all matrices.",
    ),
    "nadam": Choice(
        "NAdam",
        (_BETAS, _EPS, _DECAY, number("momentum_decay", 0.004, least=0), _DECOUPLED, _MAXIMIZE),
        "Adam with Nesterov momentum (Dozat 2016).",
    ),
    "radam": Choice("RAdam", (_BETAS, _EPS, _DECAY, _DECOUPLED, _MAXIMIZE), "Rectified Adam (Liu et al. 2020)."),
    "rprop": Choice(
        "Rprop",
        (numbers("etas", (0.5, 1.2), above=0), numbers("step_sizes", (1e-6, 50), least=0), _MAXIMIZE),
        "Uses only the signs of the gradients; for full-batch training (Riedmiller and Braun 1993).",
        rate_once=True,
    ),
}
REFUSED_OPTIMIZERS = {
    "LBFGS": "evaluates the loss several times per step, so a step has no fixed length",
    "SparseAdam": "takes only sparse gradients, which no network here has",
}

NO_CRITERION = "none"
# For one output and one target. All average over the batch.
CRITERIA: dict[str, CriterionChoice] = {
    "cross_entropy": CriterionChoice(
        "CrossEntropyLoss",
        (_WEIGHT, _IGNORED, number("label_smoothing", 0.0, least=0, most=1)),
        "Class scores against class indices; weight has one entry for each class.",
        "classes",
    ),
    "mse": CriterionChoice("MSELoss", (), "Mean squared error."),
    "bce_with_logits": CriterionChoice(
        "BCEWithLogitsLoss",
        (_WEIGHT, numbers("pos_weight", least=0)),
        "Yes/no scores against 0 and 1; weight and pos_weight have one entry for each output.",
        "shares",
    ),
    "l1": CriterionChoice("L1Loss", (), "Mean absolute error."),
    "smooth_l1": CriterionChoice("SmoothL1Loss", (number("beta", 1.0, least=0),), "Squared below beta, then absolute."),
    "huber": CriterionChoice(
        "HuberLoss", (number("delta", 1.0, above=0),), "Squared near zero, absolute beyond delta."
    ),
    "nll": CriterionChoice(
        "NLLLoss",
        (_WEIGHT, _IGNORED),
        "Log-probabilities (log_softmax) against class indices.",
        "classes",
        "log_probabilities",
    ),
    "bce": CriterionChoice(
        "BCELoss",
        (_WEIGHT,),
        "Probabilities (after a sigmoid) against 0 and 1. Safer: bce_with_logits.",
        "shares",
        "probabilities",
    ),
    "hinge_embedding": CriterionChoice(
        "HingeEmbeddingLoss", (number("margin", 1.0),), "Distances against 1 (alike) and -1 (not alike).", "signs"
    ),
    "kl_div": CriterionChoice(
        "KLDivLoss",
        (word("reduction", "mean", "mean", "batchmean"), flag("log_target")),
        "Log-probabilities against probabilities; batchmean is the divergence itself.",
        outputs="log_probabilities",
    ),
    "multi_label_margin": CriterionChoice(
        "MultiLabelMarginLoss", (), "Class scores against lists of class indices, filled up with -1.", "lists"
    ),
    "multi_label_soft_margin": CriterionChoice(
        "MultiLabelSoftMarginLoss", (_WEIGHT,), "Yes/no scores against 0 and 1, the mean over the classes.", "shares"
    ),
    "multi_margin": CriterionChoice(
        "MultiMarginLoss",
        (integer("p", 1, most=2), number("margin", 1.0), _WEIGHT),
        "Class scores against class indices, by a margin.",
        "classes",
    ),
    "poisson_nll": CriterionChoice(
        "PoissonNLLLoss",
        (flag("log_input", default=True), flag("full"), number("eps", 1e-8, above=0)),
        "Rates against counts.",
        "counts",
    ),
    "soft_margin": CriterionChoice("SoftMarginLoss", (), "Scores against 1 and -1.", "signs"),
    NO_CRITERION: CriterionChoice(
        "", (), "The output of the network is the loss itself: of the batch, or one for each sample."
    ),
}
REFUSED_CRITERIA = {
    "AdaptiveLogSoftmaxWithLoss": "has weights of its own, which belong in the network",
    "CTCLoss": "also needs the lengths of inputs and targets",
    "CosineEmbeddingLoss": "compares two outputs",
    "GaussianNLLLoss": "needs a second output, the variance",
    "LinearCrossEntropyLoss": "has weights of its own, which belong in the network",
    "MarginRankingLoss": "compares two outputs",
    "TripletMarginLoss": "compares three outputs",
    "TripletMarginWithDistanceLoss": "compares three outputs and needs a function",
}
# Criteria with class indices as targets; only they have an accuracy.
CLASSIFICATION = frozenset(name for name, choice in CRITERIA.items() if choice.targets == "classes")

LR_SCHEDULERS: dict[str, LRSchedulerChoice] = {
    "cosine": LRSchedulerChoice(
        "CosineAnnealingLR",
        (integer("T_max", required=True), _ETA_MIN),
        "A half cosine down to eta_min.",
        span="T_max",
        afterwards="rises",
    ),
    "step": LRSchedulerChoice(
        "StepLR",
        (integer("step_size", required=True), _GAMMA),
        "Times gamma every step_size epochs.",
        first_change="step_size",
    ),
    "multi_step": LRSchedulerChoice(
        "MultiStepLR",
        (Argument("integers", "milestones", least=1, required=True), _GAMMA),
        "Times gamma at each milestone.",
        first_change="milestones",
    ),
    "exponential": LRSchedulerChoice(
        "ExponentialLR", (number("gamma", least=0, required=True),), "Times gamma every epoch."
    ),
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
            number("max_lr", above=0, required=True),
            integer("total_steps", required=True),
            number("pct_start", 0.3, above=0, below=1),
            word("anneal_strategy", "cos", "cos", "linear"),
            flag("cycle_momentum", default=True),
            number("base_momentum", 0.85, least=0, below=1),
            number("max_momentum", 0.95, least=0, below=1),
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
            _EPS,
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
        (integer("T_0", required=True), integer("T_mult", 1), _ETA_MIN),
        "A half cosine down that starts again, each time T_mult times as long.",
    ),
    "cyclic": LRSchedulerChoice(
        "CyclicLR",
        (
            number("base_lr", above=0, required=True),
            number("max_lr", above=0, required=True),
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
_CALLS = "needs a function, and a spec cannot hold code; the names that begin with warmup_ are such functions"
REFUSED_LR_SCHEDULERS = {
    "ChainedScheduler": "multiplies other LR schedulers; name a sequence of them, or use warm_up",
    "LambdaLR": _CALLS,
    "MultiplicativeLR": _CALLS,
}
_WARM_UP_STEPS = integer("num_warmup_steps", least=0, required=True)
_TRAINING_STEPS = integer("num_training_steps", required=True)
# LR schedules of the library transformers, with its names and arguments. torch runs them as LambdaLR; the functions
# are in `engine.optimizers`. Step i (from 0) of the warm-up uses i / num_warmup_steps of the learning rate.
LR_FORMULAS: dict[str, LRSchedulerChoice] = {
    "warmup_cosine": LRSchedulerChoice(
        "get_cosine_schedule_with_warmup",
        (_WARM_UP_STEPS, _TRAINING_STEPS, number("num_cycles", 0.5, least=0)),
        "Up from 0 in a line, then a half cosine down to 0.",
        per="step",
        span="num_training_steps",
        afterwards="rises",
    ),
    "warmup_linear": LRSchedulerChoice(
        "get_linear_schedule_with_warmup",
        (_WARM_UP_STEPS, _TRAINING_STEPS),
        "Up from 0 in a line, then down to 0 in a line.",
        per="step",
        span="num_training_steps",
    ),
    "warmup_polynomial": LRSchedulerChoice(
        "get_polynomial_decay_schedule_with_warmup",
        (_WARM_UP_STEPS, _TRAINING_STEPS, number("lr_end", 1e-7, least=0), number("power", 1.0, least=0)),
        "Up from 0 in a line, then down to lr_end by a power of the remaining share.",
        per="step",
        span="num_training_steps",
    ),
    "warmup_constant": LRSchedulerChoice(
        "get_constant_schedule_with_warmup", (_WARM_UP_STEPS,), "Up from 0 in a line; then it stays.", per="step"
    ),
}
SEQUENCE = "sequence"
# Everything that the entry lr_scheduler can name.
LR_SCHEDULES: dict[str, LRSchedulerChoice] = {
    **LR_SCHEDULERS,
    **LR_FORMULAS,
    SEQUENCE: LRSchedulerChoice("SequentialLR", (), "One after another, each until its milestone."),
}
# What can be a part of a sequence: one_cycle and cyclic replace the learning rate, and a plateau is measured.
LR_STAGES = {
    name: choice
    for name, choice in LR_SCHEDULES.items()
    if name not in (SEQUENCE, "one_cycle", "cyclic") and not choice.measured
}
REFUSED_LR_STAGES = REFUSED_LR_SCHEDULERS | {
    "one_cycle": "brings its own warm-up and its own learning rates, so it stands alone",
    "OneCycleLR": "brings its own warm-up and its own learning rates, so it stands alone",
    "cyclic": "brings its own learning rates, so it stands alone",
    "CyclicLR": "brings its own learning rates, so it stands alone",
    "reduce_on_plateau": "goes by a loss, which a sequence does not pass on",
    "ReduceLROnPlateau": "goes by a loss, which a sequence does not pass on",
    SEQUENCE: "cannot be in a sequence itself; put its parts into this one",
    "SequentialLR": "cannot be in a sequence itself; put its parts into this one",
}
