"""What another machine refuses to train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headtohead.execution.cluster import FOLDER_TOKEN
from headtohead.plugin import Job, RemoteJob


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "runs" / "tiny" / ".stacks" / "one"
    folder.mkdir(parents=True)
    return Job(folder, "cpu")


@pytest.mark.parametrize("content", ["a copy from last week", None])
def test_a_folder_with_the_same_path_and_another_token_is_another_folder(job: Job, content: str | None) -> None:
    sent = RemoteJob.of(job)
    if content is None:
        (job.stack / FOLDER_TOKEN).unlink()
    else:
        (job.stack / FOLDER_TOKEN).write_text(content)
    refused = sent.train()
    assert isinstance(refused, str)
    assert f"folder '{job.stack.parents[2]}'; choose a folder that all machines share with --runs" in refused


def test_another_code_version_on_the_other_machine_is_refused(job: Job) -> None:
    refused = replace(RemoteJob.of(job), code="0.1.0 (code 12345678)").train()
    assert isinstance(refused, str)
    assert refused.endswith("this machine 0.1.0 (code 12345678); install the same version on both")
