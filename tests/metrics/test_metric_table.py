"""What a server calls itself is shown as it is, whatever it holds."""

from __future__ import annotations

import io

from rich.console import Console

from harness.console import plain_console
from harness.metrics.metric_table import print_metrics
from harness.metrics.summary import metric_rows
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk

EVIL = "evil[bold]x[/nope]:bug:"


def request() -> RequestTranscript:
    answered = RequestTranscript("a", Ending.COMPLETE, 0.0, t_sent_s=0.0, t_end_s=1.0)
    answered.choices[0] = ChoiceTranscript([TokenChunk(0.5, tokens=1), TokenChunk(0.9, tokens=1)])
    return answered


def test_markup_in_a_title_or_a_note_is_only_text():
    shown = io.StringIO()
    rows = metric_rows([request()])
    noted = next(row for row in rows if row["window"] is None and row["value"] is not None)
    noted["note"] = EVIL
    print_metrics(Console(file=shown, width=200), rows, "evil[bold]x[/nope]")
    assert "evil[bold]x[/nope]" in shown.getvalue().splitlines()[0]
    assert f"({EVIL.split(':')[0]}" in shown.getvalue()


def test_the_console_of_the_commands_reads_no_markup(capsys):
    plain_console().print(EVIL)
    assert capsys.readouterr().out == EVIL + "\n"
