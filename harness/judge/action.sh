#!/usr/bin/env bash
# The GitHub Action: install headtohead-judge, judge $SCORES of the working tree against $BASELINE_REF, and write the
# table as the summary of the step. Only a worse pull request (exit code 1) and bad input (2) fail the step.
set -uo pipefail

environment=$(mktemp -d)
python3 -m venv "$environment" || exit 70
"$environment/bin/python" -m pip --disable-pip-version-check install --quiet "$GITHUB_ACTION_PATH/harness/judge" || exit 70

"$environment/bin/python" -P -m headtohead_judge.pull_request "$SCORES" --baseline-ref "$BASELINE_REF" --metric "$METRIC" |
  tee -a "$GITHUB_STEP_SUMMARY"
code=${PIPESTATUS[0]}
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
[ "$code" -ne 3 ] || code=0
exit "$code"
