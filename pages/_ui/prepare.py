"""What a person does to hand a network in: one command on their own machine, or a file that is good already."""

import streamlit as st

from pages._ui import markup

COMMAND = "unifiednn pack model.py:Net --input 1,28,28"
OPTIONS = (
    ("--input 1,28,28", "shape of one sample, without the batch"),
    ("--dtype int64", "the inputs are ids"),
    ("--arg width=16", "an argument of Net; repeatable"),
    ("--free 1", "sequences of any length: size 1 of a sample varies"),
)
_PACK = "**Pack it on your own machine**, where torch and UnifiedNN are installed:"
_CHECKED = (
    "This exports your code for any batch size and compares training steps with it, bit for bit. Where it cannot, it "
    "says at which line, and what to write instead. Add `Net.pt2`; edit `Net.json`, its hyper-parameters, and paste "
    "them into a sub-model."
)
_READY = (
    "**Good as they are:** a `.pt2` of `torch.export`; weights of a network that is known by name; "
    "`torch.save(network)` of torch's own layers; a list of layers; a `config.json` of transformers."
)
_BACK = "**What comes back:** the trained network in the format in which it came, and its weights as `.safetensors`."
_WIDTH_PX = 520


def panel() -> None:
    """Draw a button that opens the text."""
    with (
        st.popover("Prepare your model", icon=":material/package_2:", type="tertiary", key="prepare", width="content"),
        st.container(width=_WIDTH_PX),
    ):
        st.markdown(_PACK)
        st.code(COMMAND, language=None)
        st.html(markup.terms(OPTIONS))
        for text in (_CHECKED, _READY, _BACK):
            st.markdown(text)
