"""The certificate of a trained model: what was compared, and the lines that load it."""

from unifiednn_core.base.texts import tr
from unifiednn_core.views import markup
from unifiednn_core.views.certificate import OUTCOMES, TITLES, Certificate, CertificateCheck, headline

_LOOKS = {"equal": ("green", "check"), "differs": ("red", "close"), "not compared": ("faint", "remove")}


def card(certificate: Certificate) -> str:
    """HTML: one line that opens to every comparison, the versions and the lines of Python that load the network."""
    colour, symbol = ("green", "verified") if certificate.holds else ("red", "gpp_bad")
    rows = "".join(map(_row, certificate.compared))
    versions = ", ".join(f"{name} {number}" for name, number in sorted(certificate.versions.items()))
    files = certificate.files.get(certificate.model, "")
    facts = [tr("Made with {versions}.", versions=versions)]
    facts += [tr("SHA-256 of {file}: {sha256}", file=certificate.model, sha256=files)] if files else []
    told = "".join(f"<p>{markup.faint(line)}</p>" for line in facts)
    loads = f"<p>{markup.text(tr('To load it:'))}</p><pre>{markup.text(_code(certificate.snippet))}</pre>"
    return (
        f'<details class="u-certificate"{"" if certificate.holds else " open"} style="--c:var(--u-{colour})">'
        f"<summary>{markup.icon(symbol)}<span>{markup.text(headline(certificate))}</span></summary>"
        f'<ul role="list">{rows}</ul>{told}{loads if certificate.snippet else ""}</details>'
    )


def _row(one: CertificateCheck) -> str:
    colour, symbol = _LOOKS[one.outcome]
    said = markup.bold(f"{tr(TITLES[one.what])}: {tr(OUTCOMES[one.outcome])}.")
    return f'<li style="--c:var(--u-{colour})">{markup.icon(symbol)}<span>{said} {markup.faint(one.text)}</span></li>'


def _code(snippet: str) -> str:
    """The lines up to the remarks on other ways."""
    return snippet.partition("\n\n#")[0].strip()
