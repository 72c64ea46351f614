"""The site: complete, self-contained, and deaf to what a hostile result says."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.cli import main
from harness.leaderboard.site import write_site
from harness.leaderboard.standings import read_standings
from tests.leaderboard.fixtures import make_results

OWN = "document.documentElement.dataset.owned='yes'"
HOSTILE = f"</title></script></svg>\"'><script>{OWN}</script><img src=x onerror={OWN}>"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def build(results: Path, out: Path) -> list[str]:
    return write_site(read_standings(results), out)


def poisoned(results: Path) -> Path:
    """Every free text of every document becomes hostile."""
    for file in results.rglob("result.json"):
        document = json.loads(file.read_text())
        for field in ("name", "version", "model", "dtype", "url"):
            document["server"][field] = HOSTILE
        document["command"] = [HOSTILE]
        document["error"] = HOSTILE
        document["environment"]["cpu_model"] = HOSTILE
        document["client_health"] = {"valid": False, "reasons": [HOSTILE], "numbers": {}}
        for verdict in document["verdicts"]:
            verdict |= {"sentence": HOSTILE, "reason": HOSTILE, "evidence": {HOSTILE: 1}}
            for failure in verdict["failures"]:
                failure |= {"detail": HOSTILE, "expected": HOSTILE, "guess": HOSTILE}
        for workload in document["workloads"]:
            workload["name"] = HOSTILE
        file.write_text(json.dumps(document))
    return results


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_every_link_leads_to_a_file_and_an_id(tmp_path: Path) -> None:
    """Cells, failures and runs: what is clicked is there, without a network."""
    assert build(make_results(tmp_path / "results"), tmp_path / "site") == []
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 6
    for page in pages:
        for tag, attributes in Elements(page.read_text()).found:
            assert "src" not in attributes, tag
            href = attributes.get("href")
            if tag != "a" or href is None:
                continue
            name, _, fragment = href.partition("#")
            target = page.parent / name if name else page
            assert target.is_file(), href
            if fragment:
                assert f'id="{fragment}"' in target.read_text(), href


def test_a_site_within_the_results_is_not_read_back(tmp_path: Path) -> None:
    """The copies that the site keeps are not runs of their own; building twice changes nothing."""
    results = make_results(tmp_path)
    assert build(results, results / "leaderboard") == []
    first = (results / "leaderboard" / "index.html").read_bytes()
    assert build(results, results / "leaderboard") == []
    assert (results / "leaderboard" / "index.html").read_bytes() == first


def test_tables_speak_to_a_screen_reader(tmp_path: Path) -> None:
    """Captions, scopes, buttons in sortable heads, labels, a language, a focusable scroll area."""
    build(make_results(tmp_path / "results"), tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text()
    elements = Elements(page).found
    tables = [a for t, a in elements if t == "table"]
    assert len(tables) == sum(t == "caption" for t, _ in elements)
    assert all("scope" in a for t, a in elements if t == "th")
    assert ("html", {"lang": "en"}) in elements
    assert '<label for="filter">' in page
    assert all(a.get("tabindex") == "0" for t, a in elements if a.get("class") == "scroll")
    assert all("aria-label" in a for t, a in elements if t == "svg")


def test_a_hostile_result_stays_text(tmp_path: Path) -> None:
    """No element, attribute or link comes out of a result."""
    assert build(poisoned(make_results(tmp_path / "results")), tmp_path / "site") == []
    for page in (tmp_path / "site").rglob("*.html"):
        elements = Elements(page.read_text()).found
        assert sum(t == "script" for t, _ in elements) == (
            page.name == "index.html" and page.parent.name == "site"
        )
        assert not [t for t, _ in elements if t in {"img", "iframe", "object", "link"}]
        assert not [a for _, attributes in elements for a in attributes if a.startswith("on")]


def test_a_path_out_of_the_run_is_not_followed(tmp_path: Path) -> None:
    """A symbolic link in a run folder cannot publish another file."""
    results = make_results(tmp_path / "results")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for workload in results.rglob("workload-ragged.json"):
        workload.unlink()
        workload.symlink_to(secret)
    build(results, tmp_path / "site")
    assert not list((tmp_path / "site").rglob("workload-ragged.json"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("hostile", [False, True], ids=["honest", "hostile"])
def test_in_a_real_browser(hostile: bool, tmp_path: Path) -> None:
    """Our script runs, a hostile one does not, on the standings and on every run's page."""
    results = make_results(tmp_path / "results")
    build(poisoned(results) if hostile else results, tmp_path / "site")
    for page in (tmp_path / "site").rglob("*.html"):
        dom = dumped(page, tmp_path / "profile")
        assert 'data-owned="yes"' not in dom, page
        if page.parent.name == "site":
            assert 'data-script="on"' in dom
            assert len(re.findall(r"<script[\s>]", dom)) == 1


def dumped(page: Path, profile: Path) -> str:
    """The page's document after its scripts ran."""
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={profile}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_builds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says where; nothing to show is status 2."""
    make_results(tmp_path / "results")
    with pytest.raises(SystemExit) as ended:
        main(["leaderboard", str(tmp_path / "results"), "--out", str(tmp_path / "site")])
    assert ended.value.code == 0
    assert "5 runs of 2 checked servers" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["leaderboard", str(tmp_path / "empty"), "--out", str(tmp_path / "site")])
    assert ended.value.code == 2
