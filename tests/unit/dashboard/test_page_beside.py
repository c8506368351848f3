"""`scan --live`: the page is served by a process beside the campaign, from its first moment to its end."""

import re
import subprocess
import sys
from urllib.error import URLError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?token=\S+")


def test_the_page_is_there_while_the_campaign_runs_and_goes_with_it(tmp_path):
    line = [sys.executable, "-m", "metalforge", "scan", "--preset", "tiny", "--live", "--json", "--out", "run"]
    with subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as scan:
        said = ""
        while not (found := ADDRESS.search(said)):
            said += scan.stderr.readline()
            assert scan.poll() is None, said
        # The address is said before the campaign begins: whoever opens it is not late for anything.
        with build_opener(HTTPCookieProcessor()).open(found[0]) as page:
            assert page.status == 200
            assert "metalforge" in page.read().decode()
        scan.communicate()
    assert scan.returncode == 0
    assert (tmp_path / "run" / "report.html").exists()
    with pytest.raises(URLError):
        urlopen(found[0])
