"""The pages that compare the attention of all variants."""

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from headtohead.figures.sheet import grid, tiles
from headtohead.storage.attention_maps import load_maps
from headtohead.tracking import attention_pages as module
from headtohead.tracking.attention_pages import attention_pages
from headtohead.tracking.study import TrackedStudy
from made.fake_study import record_checksums

VARIANTS = ["sinusoidal", "rotary", "none"]


def _pages(folder: Path) -> dict[str, str]:
    return dict(attention_pages(TrackedStudy.read(folder)))


def _images(page: str) -> list[np.ndarray]:
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")) for data in found]


def test_a_page_per_probe_has_every_variant_first_the_baseline_and_the_differences_to_it(
    make_experiment: Callable[..., Path],
) -> None:
    folder = make_experiment(axes={"positional": VARIANTS}, seeds=(1, 2))
    pages, study = _pages(folder), TrackedStudy.read(folder)
    assert list(pages) == [f"probe-{index}.html" for index in range(len(study.record.probes))]
    for page in pages.values():
        assert "http" not in re.sub(r'src="[^"]*"', "", page)
        sections = re.split("<h2>", page)[1:]
        assert [section.partition("<")[0] for section in sections] == ["cross-attention", "decoder", "encoder"]
        for section in sections:
            titles = re.findall("<h3>(.*?) \\(seed 1", section)
            assert sorted(titles) == sorted(VARIANTS)
            assert titles[0] == study.record.by_slug[study.record.baseline].title
            same_tokens = section.count("minus the baseline</figcaption>")
            assert same_tokens + section.count("No difference to the baseline") == 2
            assert len(_images(section)) == 3 + same_tokens


def test_the_second_picture_of_a_variant_is_the_difference_to_the_baseline(
    make_experiment: Callable[..., Path],
) -> None:
    folder = make_experiment(axes={"positional": VARIANTS[:2]})
    probes = [load_maps(run.path)[0] for run in TrackedStudy.read(folder).runs()]
    section = _pages(folder)["probe-0.html"].partition("<h2>encoder")[2]
    drawn = _images(section)
    difference = probes[1].weights["encoder"] - probes[0].weights["encoder"]
    for picture, weights in zip(drawn, [probe.weights["encoder"] for probe in probes] + [difference], strict=True):
        expected = np.asarray(grid(tiles(weights, *probes[0].tokens("encoder")), weights.shape[1]))
        assert picture.shape == expected.shape
        assert np.abs(picture.astype(int) - expected).mean() < 4  # the colours of a page are reduced
    assert np.abs(drawn[2].astype(int) - drawn[1]).mean() > 5


def test_variants_after_the_twelfth_are_folded_and_pages_stay_below_4_megabytes(
    make_experiment: Callable[..., Path], monkeypatch
) -> None:
    folder = make_experiment(axes={"positional": VARIANTS})
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    section = _pages(folder)["probe-0.html"].partition("<h2>decoder")[0]
    opened, _, folded = section.partition("<details><summary>1 more variants</summary>")
    assert (opened.count("<h3>"), folded.count("<h3>")) == (2, 1)
    monkeypatch.setattr(module, "MAX_BYTES", 20_000)
    limited = _pages(folder)["probe-0.html"]
    assert len(limited) < 25_000
    assert "Too large for this page: " in limited


def test_a_page_of_a_text_is_named_after_the_text(make_experiment: Callable[..., Path]) -> None:
    """The probes of a text have no source; its characters are escaped."""
    folder = make_experiment(axes={"positional": VARIANTS[:1]})
    (file,) = folder.glob("*/attention/probes.json")
    probes = [probe | {"source": "", "target": "<b> | x"} for probe in json.loads(file.read_text())]
    file.write_text(json.dumps(probes))
    record_checksums(file.parent.parent)
    assert "<h1>Attention of every variant: “&lt;b&gt; | x”</h1>" in _pages(folder)["probe-0.html"]
