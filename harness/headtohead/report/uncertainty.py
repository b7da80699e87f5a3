"""The section on sources of uncertainty: seeds, test sentences, and whether pairing by seed helps."""

from __future__ import annotations

from headtohead.report.content import Report
from headtohead.report.section import Section, contrast_name, difference, table, with_interval
from headtohead.statistics.variance import CrossedEstimate, MeanEstimate
from headtohead.storage.metrics import show


def uncertainty_section(report: Report) -> Section | None:
    """Return the standard deviation by source, and the contrasts with other intervals; None with a single seed."""
    analysis, metric = report.analysis, report.analysis.metric
    found = analysis.uncertainty
    if found is None:
        return None
    sds = {"variant": found.variant_sd}
    if found.has_draws:
        sds["training seed, draw of the data and its test sentences"] = found.seed_sd
        scope = "Intervals include training seeds, draws of the data and test sentences."
    else:
        count = f" ({found.num_sentences:,})" if found.num_sentences else ""
        sds |= {"training seed": found.seed_sd, f"test sentences{count}": found.sentence_sd}
        scope = "Intervals over seeds hold for this draw of the data and these test sentences."
    effect = "removes this fraction of the variance" if found.pairing_helps else "brings nothing"
    lines = [
        *([f"Test sentences are not analysed: {found.reason}."] if found.reason else []),
        f"Intra-class correlation of seeds: {f'{found.correlation:.2f}'.replace('-', '−')}. Pairing by seed {effect}.",
    ]

    def estimate(value: CrossedEstimate | MeanEstimate | None) -> str:
        if value is None:
            return "–"
        interval = value.interval()
        return with_interval(value.mean, interval.low, interval.high, metric, signed=True)

    rows = []
    for row in found.contrasts:
        cells = {
            "contrast": contrast_name(analysis, row.contrast),
            "over seeds": difference(row.contrast.paired, metric),
        }
        cells |= {} if found.reason else {"with sentences": estimate(row.with_sentences)}
        rows.append(cells | ({} if found.pairing_helps else {"unpaired": estimate(row.unpaired)}))
    parts = [Section("Contrasts with 95 % intervals", frame=table(rows))] if rows and len(rows[0]) > 2 else []
    return Section(
        "Sources of uncertainty",
        f"Standard deviation of {report.metric} by source. {scope}",
        frame=table({"source": source, "standard deviation": show(sd, metric)} for source, sd in sds.items()),
        lines=lines if found.correlation == found.correlation else lines[:-1],
        parts=parts,
    )
