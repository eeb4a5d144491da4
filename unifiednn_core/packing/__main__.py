"""`python -m unifiednn_core.packing REQUEST`: packs one network and prints its report, one JSON document, on stdout."""

import logging
import os
import sys
import warnings

from unifiednn_core.errors import BadInput
from unifiednn_core.packing.request import PackReport, PackRequest


def main() -> int:
    """Do what the request asks for."""
    request = PackRequest.model_validate_json(sys.argv[1])
    # Whatever the user's code prints must not end up in the document.
    document = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # torch logs whole graphs where it cannot export one

    import torch  # after the request was understood

    from unifiednn_core.packing.work import pack

    torch.set_num_threads(1)
    try:
        report = pack(request)
    except BadInput as error:
        report = PackReport(findings=error.findings)
    document.write(report.model_dump_json())
    document.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
