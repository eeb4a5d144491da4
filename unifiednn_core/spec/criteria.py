"""torch's criteria for one output and one target, common ones first. All average over the batch."""

from unifiednn_core.spec.choice import Argument, CriterionChoice, flag, number, numbers, word

_WEIGHT = numbers("weight", least=0)
# Argument that holds the class index to leave out of loss and accuracy.
IGNORE_INDEX = "ignore_index"
_IGNORED = Argument(name=IGNORE_INDEX, kind="integer", default=-100)
_EPS = number("eps", 1e-8, above=0)

CRITERIA: dict[str, CriterionChoice] = {
    "cross_entropy": CriterionChoice(
        "CrossEntropyLoss",
        (_WEIGHT, _IGNORED, number("label_smoothing", 0.0, least=0, most=1)),
        "Class scores against class indices; weight has one entry for each class.",
        targets="classes",
    ),
    "mse": CriterionChoice("MSELoss", help="Mean squared error."),
    "bce_with_logits": CriterionChoice(
        "BCEWithLogitsLoss",
        (_WEIGHT, numbers("pos_weight", least=0)),
        "Yes/no scores against 0 and 1; weight and pos_weight have one entry for each output.",
        targets="shares",
    ),
    "l1": CriterionChoice("L1Loss", help="Mean absolute error."),
    "smooth_l1": CriterionChoice("SmoothL1Loss", (number("beta", 1.0, least=0),), "Squared below beta, then absolute."),
    "huber": CriterionChoice(
        "HuberLoss", (number("delta", 1.0, above=0),), "Squared near zero, absolute beyond delta."
    ),
    "nll": CriterionChoice(
        "NLLLoss",
        (_WEIGHT, _IGNORED),
        "Log-probabilities (log_softmax) against class indices.",
        targets="classes",
        outputs="log_probabilities",
    ),
    "bce": CriterionChoice(
        "BCELoss",
        (_WEIGHT,),
        "Probabilities (after a sigmoid) against 0 and 1. Safer: bce_with_logits.",
        targets="shares",
        outputs="probabilities",
    ),
    "hinge_embedding": CriterionChoice(
        "HingeEmbeddingLoss",
        (number("margin", 1.0),),
        "Distances against 1 (alike) and -1 (not alike).",
        targets="signs",
    ),
    "kl_div": CriterionChoice(
        "KLDivLoss",
        (word("reduction", "mean", "mean", "batchmean"), flag("log_target")),
        "Log-probabilities against probabilities; batchmean is the divergence itself.",
        outputs="log_probabilities",
    ),
    "multi_label_margin": CriterionChoice(
        "MultiLabelMarginLoss", help="Class scores against lists of class indices, filled up with -1.", targets="lists"
    ),
    "multi_label_soft_margin": CriterionChoice(
        "MultiLabelSoftMarginLoss",
        (_WEIGHT,),
        "Yes/no scores against 0 and 1, the mean over the classes.",
        targets="shares",
    ),
    "multi_margin": CriterionChoice(
        "MultiMarginLoss",
        (Argument(name="p", kind="integer", default=1, least=1, most=2), number("margin", 1.0), _WEIGHT),
        "Class scores against class indices, by a margin.",
        targets="classes",
    ),
    "poisson_nll": CriterionChoice(
        "PoissonNLLLoss",
        (flag("log_input", default=True), flag("full"), _EPS),
        "Rates against counts.",
        targets="counts",
    ),
    "soft_margin": CriterionChoice("SoftMarginLoss", help="Scores against 1 and -1.", targets="signs"),
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
