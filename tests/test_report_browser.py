"""The report in a real browser: it renders, fits a phone, is dark at night, asks for nothing."""

import contextlib
import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from html import unescape

import pytest

from tests import report_pages as made
from tests.test_report import SECTIONS

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
    # the browser's own services stay unreachable; the page is on 127.0.0.1
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip

# what a ruler would tell; only the copy for the test has a script, and no policy against it
RULER = """<script>addEventListener("load", () => {
  const box = (e) => { const r = e.getBoundingClientRect(); return [r.width, r.height]; };
  const sections = Object.fromEntries([...document.querySelectorAll("main section")]
    .map((e) => [e.id, box(e)]));
  const clipped = [];
  for (const svg of document.querySelectorAll("svg.picture")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const r = text.getBoundingClientRect();
      if (r.left < frame.left - 1 || r.right > frame.right + 1 ||
          r.top < frame.top - 1 || r.bottom > frame.bottom + 1) clipped.push(text.textContent);
    }
  }
  const letters = [...document.querySelectorAll("svg.picture text")]
    .map((e) => e.getBoundingClientRect().height).filter((h) => h > 0);
  parent.document.body.setAttribute("data-found", JSON.stringify({
    inner: innerWidth, scroll: document.scrollingElement.scrollWidth, sections, clipped,
    letters: Math.min(...letters),
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.querySelector("svg.picture text")).fill,
    loaded: performance.getEntriesByType("resource").map((e) => e.name),
  }));
});</script>"""


class Served:
    """Pages on 127.0.0.1, and what was asked for."""

    def __init__(self, folder):
        self.asked = asked = []

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                with contextlib.suppress(BrokenPipeError):  # a browser that went
                    super().do_GET()

            def log_message(self, *_):
                pass

        handler = functools.partial(Quiet, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, subject in (("numbers", made.numbers()), ("labels", made.labels())):
        page = made.page(subject)
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        open_page = re.sub(r"<meta http-equiv=[^>]+>", "", page).replace(
            "</head>", RULER + "</head>"
        )
        (folder / f"{name}-ruler.html").write_text(open_page, encoding="utf-8")
        # a window is never narrower than 500 px; a frame is as narrow as a phone
        frame = f'<iframe src="{name}-ruler.html" style="width: 390px; height: 900px"></iframe>'
        (folder / f"{name}-phone.html").write_text(f"<body>{frame}</body>", encoding="utf-8")
    found = Served(folder)
    yield found
    found.server.shutdown()
    found.server.server_close()


def opened(url, folder, *flags):
    """The page as the browser has it in the end, and what it said on its console."""
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder}", *flags, "--dump-dom", url],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, said[-2000:]
    return done.stdout.decode(), [line for line in said.splitlines() if "CONSOLE" in line]


def measured(url, folder, *flags):
    page, said = opened(url, folder, *flags)
    assert said == []
    return json.loads(unescape(re.search(r'data-found="([^"]*)"', page)[1]))


def requests_of(log, origin):
    """Addresses that a page of this origin asked for, in the browser's own log of the network."""
    text = log.read_text()
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:  # the browser went before it closed the list
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    found = [event.get("params") or {} for event in events]
    return {p["url"] for p in found if "url" in p and p.get("initiator") == origin}


def light(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_the_page_renders_and_asks_for_nothing(served, tmp_path):
    log = tmp_path / "net.json"
    page, said = opened(f"{served.address}/labels.html", tmp_path / "b", f"--log-net-log={log}")
    assert said == []
    assert "<h1>" in page
    assert "<script>" not in page
    assert served.asked.count("/labels.html") == 1
    assert served.asked == ["/labels.html"]
    assert requests_of(log, served.address) <= {f"{served.address}/labels.html"}


@pytest.mark.parametrize("name", ["numbers", "labels"])
def test_it_fits_a_phone(served, tmp_path, name):
    found = measured(f"{served.address}/{name}-phone.html", tmp_path)
    assert found["inner"] == 390
    assert found["scroll"] <= 390
    # of a posterior without a table nothing is told that drives it
    drives = [name for name in SECTIONS if name != "drives" or "drives" in found["sections"]]
    assert list(found["sections"]) == drives
    assert all(width > 300 and height > 60 for width, height in found["sections"].values())
    assert found["clipped"] == []
    assert found["letters"] >= 9
    assert found["loaded"] == []
    assert light(found["ground"]) > 240


def test_wide_and_dark(served, tmp_path):
    found = measured(
        f"{served.address}/numbers-ruler.html", tmp_path, "--window-size=1200,900",
        "--blink-settings=preferredColorScheme=0",
    )  # fmt: skip
    assert found["inner"] == 1200
    assert found["scroll"] <= 1200
    assert found["clipped"] == []
    assert light(found["ground"]) < 40
    assert light(found["ink"]) > 200


@pytest.mark.slow
def test_the_instruments_can_tell(tmp_path):
    """A page that asks, overflows and complains is seen to do so."""
    wide = '<div style="width: 2000px">x</div><svg class="picture"><text>t</text></svg>'
    ask = '<img src="/x.png"><img src="http://example.invalid/y.png">'
    page = f"<html><head>{RULER}</head><body><main>{wide}{ask}</main></body></html>"
    (tmp_path / "page.html").write_text(page)
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    (tmp_path / "policy.html").write_text(f"<html><head>{policy}</head><body>{ask}</body></html>")
    served = Served(tmp_path)
    log = tmp_path / "net.json"
    got, _ = opened(f"{served.address}/page.html", tmp_path / "b", f"--log-net-log={log}")
    _, said = opened(f"{served.address}/policy.html", tmp_path / "b")
    served.server.shutdown()
    served.server.server_close()
    found = json.loads(unescape(re.search(r'data-found="([^"]*)"', got)[1]))
    assert found["scroll"] > found["inner"]
    assert "Content Security Policy" in said[0]
    assert "/x.png" in served.asked
    assert "http://example.invalid/y.png" in requests_of(log, served.address)
