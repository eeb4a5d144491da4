"""torch's optimizers, common ones first. `lr` is not an argument here: it is the entry learning_rate."""

from unifiednn_core.spec.choice import Choice, flag, integer, number, numbers, word

_MAXIMIZE = flag("maximize")
_BETAS = numbers("betas", (0.9, 0.999), least=0, below=1)
_EPS = number("eps", 1e-8, least=0)
_DECAY = number("weight_decay", 0, least=0)
_DECOUPLED = flag("decoupled_weight_decay")

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
