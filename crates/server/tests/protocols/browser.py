"""Monitoring pages in a real browser: scripts, security policy, contrast, and screenshots in both colour schemes.

    python3 crates/server/tests/protocols/browser.py PAGES [FOLDER]

PAGES is the built example `pages`; pictures are put into FOLDER. Needs a Chromium (in PATH, or as HARRIER_CHROMIUM) and nothing
else: it is driven through its own protocol over a pipe. Ends with status 77 if there is none.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

WAIT_MAX = 30.0
DESKTOP = (1280, 900)
PHONE = (390, 844)


class Browser:
    """A Chromium, and one page in it."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="harrier-browser-", ignore_cleanup_errors=True)
        read_commands, self.commands = os.pipe()
        self.answers, write_answers = os.pipe()

        def place():
            # Away from 3 and 4 first, where either may be already.
            commands, answers = os.dup(read_commands), os.dup(write_answers)
            high = [os.dup2(commands, 100), os.dup2(answers, 101)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--no-first-run",
                   "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-extensions",
                   "--disable-background-networking", "--disable-component-update"]
        # Chromium's sandbox refuses to run as root.
        if os.geteuid() == 0:
            options.append("--no-sandbox")
        self.process = subprocess.Popen([program, *options, "about:blank"], preexec_fn=place, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_answers)
        self.held = b""
        self.last = 0
        self.session = None
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self):
        until = time.monotonic() + WAIT_MAX
        while b"\0" not in self.held:
            if not select.select([self.answers], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            more = os.read(self.answers, 1 << 20)
            assert more, "the browser has ended"
            self.held += more
        line, self.held = self.held.split(b"\0", 1)
        message = json.loads(line)
        if message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] in ("error", "warning"):
                self.complaints.append(entry["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(message["params"]["exceptionDetails"]))
        return message

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression}: {result}"
        return result["result"].get("value")

    def wait(self, expression):
        """Until the expression is true in the page."""
        until = time.monotonic() + WAIT_MAX
        while True:
            try:
                value = self.evaluate(f"!!({expression})")
            except AssertionError as error:
                # While one page goes and the next comes, there is none to ask.
                if time.monotonic() > until or not any(word in str(error) for word in ["context", "navigated"]):
                    raise
                value = None
            if value:
                return value
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.05)

    def go(self, url):
        self.evaluate("window.isOld = true")
        result = self.call("Page.navigate", url=url)
        assert not result.get("errorText"), result
        self.wait("!window.isOld && document.readyState === 'complete'")

    def size(self, width, height, is_phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone)

    def scheme(self, name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.profile.cleanup()


class Server:
    """The example, with invented statements."""

    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), self.url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(15) == 0


def link_to(text):
    """The path of the statement whose text has this."""
    return f"""[...document.querySelectorAll("td.text a")].find((a) => a.textContent.includes({json.dumps(text)}))"""


# Contrast of text against its background by WCAG 2: the lowest of the page must be 4.5.
CONTRAST = """(() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  let worst = [21, ""];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length || element.closest("svg")) continue;
    let behind = element;
    while (behind && (numbers(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(numbers(getComputedStyle(behind || document.body).backgroundColor))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.textContent.trim().slice(0, 40)];
  }
  return worst;
})()"""


def busy_pages(browser, server):
    """Every page, with statements that have ended, run, wait and failed."""
    browser.go(f"{server.url}/statements")
    of = {name: browser.evaluate(f"{link_to(text)}.getAttribute('href')") for name, text in
          {"planned": "o_orderpriority", "running": "<script>", "failed": "SELECT 1 / 0", "waiting": "CREATE TABLE summary"}.items()}
    return {"overview": "/", "statements": "/statements", **of, "sessions": "/sessions", "ranks": "/ranks",
            "queues": "/queues", "tables": "/tables", "absent": "/absent"}


def pictures(browser, server, folder, pages, prefix=""):
    """Pages in both colour schemes, on a desktop and a phone: nothing is cut off, faint or complained about."""
    for scheme in ["light", "dark"]:
        browser.scheme(scheme)
        for device, (width, height) in [("desktop", DESKTOP), ("phone", PHONE)]:
            browser.size(width, height, device == "phone")
            for name, path in pages.items():
                browser.go(server.url + path)
                browser.picture(folder / f"{prefix}{name}-{device}-{scheme}.png")
                wide = browser.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{name} is {wide} wide on a {device} of {width}"
                # Tables fit, and only plans and their text have to be scrolled.
                cut = browser.evaluate("[...document.querySelectorAll('.scroll')].filter((area) => area.querySelector('.cards')"
                                       " && area.scrollWidth > area.clientWidth).length")
                assert cut == 0, f"{name} has a table that is cut off on a {device}"
                ratio, text = browser.evaluate(CONTRAST)
                assert ratio >= 4.5, f"{name} in {scheme}: {text!r} has a contrast of {ratio:.2f}"
    browser.scheme("light")
    browser.size(*DESKTOP)
    complaints = [text for text in browser.complaints if "404" not in text]
    assert not complaints, complaints


def plans_are_drawn(browser, server):
    """What ran is drawn with all its operators, in boxes that do not overlap, and what runs shows how far it is."""
    browser.go(f"{server.url}/statements")
    browser.evaluate(f"{link_to('o_orderpriority')}.click()")
    browser.wait("document.readyState === 'complete' && document.querySelector('.plan svg')")
    operators = browser.evaluate("document.getElementById('text').textContent.trim().split('\\n').filter((line) => line.startsWith('  ')).length")
    assert operators > 5
    assert browser.evaluate("document.querySelectorAll('.plan .node').length") == operators
    assert browser.evaluate("document.querySelectorAll('.plan .edge').length") == operators - 1
    assert browser.evaluate("document.querySelectorAll('.plan .motion').length") >= 2
    overlaps = browser.evaluate("""(() => {
      const boxes = [...document.querySelectorAll('.node .box')].map((box) => box.getBoundingClientRect());
      return boxes.filter((a, at) => boxes.slice(0, at).some((b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
    })()""")
    assert overlaps == 0, f"{overlaps} boxes lie on others"
    # Each rank has a row, and the one that did most the longest bar.
    bars = browser.evaluate("[...document.querySelectorAll('.shares tbody tr')].map((row) => row.querySelector('.bar rect').getBoundingClientRect().width)")
    assert len(bars) == 3 and max(bars) > 50, bars
    assert browser.evaluate("document.querySelectorAll('progress').length") == 0
    browser.go(f"{server.url}/statements")
    browser.evaluate(f"{link_to('<script>')}.click()")
    browser.wait("document.readyState === 'complete' && document.querySelector('progress')")
    assert 0 < browser.evaluate("document.querySelector('progress').value") < 1
    assert browser.evaluate("document.querySelectorAll('.node .read').length") > 0


def many_and_long_statements_are_shown(browser, server):
    """200 statements, and a text of 5 MB, of which the beginning is shown."""
    began = time.monotonic()
    browser.go(f"{server.url}/statements")
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") > 200
    browser.evaluate(f"{link_to('INSERT INTO t VALUES')}.click()")
    browser.wait("document.readyState === 'complete' && document.querySelector('pre.sql')")
    assert browser.evaluate("document.querySelector('pre.sql').textContent.length") < 70_000
    assert "MiB." in browser.evaluate("document.querySelector('pre.sql + .hint').textContent")
    assert time.monotonic() - began < WAIT_MAX


def nothing_hostile_runs(browser, server):
    browser.go(f"{server.url}/statements")
    browser.evaluate(f"{link_to('<script>')}.click()")
    browser.wait("location.pathname.startsWith('/statements/')")
    browser.wait("document.readyState === 'complete'")
    assert browser.evaluate("document.title").startswith("Statement "), "a statement took the title"
    assert "<script>" in browser.evaluate("document.querySelector('pre.sql').textContent")
    assert browser.evaluate("document.querySelectorAll('main script, main img').length") == 0
    # What stands in a page does not run even if it got there.
    browser.evaluate("(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })()")
    assert browser.evaluate("window.ran") is None
    assert any("Content Security Policy" in text for text in browser.complaints), browser.complaints
    browser.complaints.clear()


def refreshes_and_stays_where_it_is(browser, server):
    browser.size(420, 400)
    browser.go(f"{server.url}/statements?show=running")
    rows = f"{link_to('<script>')}.closest('tr').querySelector('[data-label=rows]').textContent"
    before = browser.evaluate(rows)
    browser.wait(f"{rows} !== {json.dumps(before)}")
    # Scrolling of the page and inside of it, and open details, stay.
    browser.evaluate(f"{link_to('<script>')}.click()")
    browser.wait("document.readyState === 'complete' && document.getElementById('text')")
    told = "[...document.querySelectorAll('dt')].find((dt) => dt.textContent === 'rows').nextSibling.textContent"
    browser.evaluate("document.getElementById('text').open = true; document.querySelector('.plan').scrollLeft = 33; window.scrollTo(0, 300)")
    before = browser.evaluate(told)
    browser.wait(f"{told} !== {json.dumps(before)}")
    stayed = browser.evaluate("[scrollY, document.querySelector('.plan').scrollLeft, document.getElementById('text').open]")
    assert stayed == [300, 33, True], stayed
    # So does what is selected.
    browser.evaluate("getSelection().selectAllChildren(document.querySelector('pre.sql'))")
    before = browser.evaluate(told)
    time.sleep(3)
    assert browser.evaluate(told) == before and browser.evaluate("getSelection().toString().length") > 10
    browser.evaluate("getSelection().removeAllRanges()")
    browser.wait(f"{told} !== {json.dumps(before)}")
    # A pause is one.
    browser.evaluate("document.getElementById('pause').click()")
    before = browser.evaluate(told)
    time.sleep(3)
    assert browser.evaluate(told) == before
    browser.size(*DESKTOP)


def works_without_scripts(browser, server):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.call("Page.navigate", url=f"{server.url}/statements")
    browser.wait("document.readyState === 'complete' && document.querySelector('noscript meta')")
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") > 10
    assert browser.evaluate("document.getElementById('pause').hidden")
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def cancels_and_ends(browser, server):
    browser.go(f"{server.url}/statements?show=running")
    browser.evaluate(f"{link_to('<script>')}.click()")
    browser.wait("document.readyState === 'complete' && document.querySelector('button.danger')")
    browser.evaluate("document.querySelector('button.danger').click()")
    browser.wait("document.querySelector('.badge.canceled') && !document.querySelector('button.danger')")
    assert "57014" in browser.evaluate("document.querySelector('.notice.bad').textContent")
    browser.go(f"{server.url}/sessions")
    count = browser.evaluate("document.querySelectorAll('tbody tr').length")
    row = "[...document.querySelectorAll('tbody tr')].find((tr) => tr.textContent.includes('BI tool'))"
    browser.evaluate(f"{row}.querySelector('button.danger').click()")
    browser.wait(f"document.querySelectorAll('tbody tr').length === {count - 1}")
    # The form of another page does nothing.
    browser.go("about:blank")
    browser.evaluate(f"""(() => {{
      document.body.innerHTML = '<form method="post" action="{server.url}/sessions/1/terminate"><input name="token" value="x"></form>';
      document.forms[0].submit();
    }})()""")
    browser.wait("location.href !== 'about:blank' && document.readyState === 'complete'")
    browser.go(f"{server.url}/sessions")
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") == count - 1
    assert not [text for text in browser.complaints if "403" not in text], browser.complaints
    browser.complaints.clear()


def tells_when_the_server_is_gone(browser, program):
    with Server(program) as server:
        browser.go(server.url)
        assert not browser.evaluate("!document.getElementById('stale').hidden")
    browser.wait("!document.getElementById('stale').hidden")
    assert browser.evaluate("document.querySelectorAll('main table').length") > 0


def find_chromium():
    names = [os.environ.get("HARRIER_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((found for found in (shutil.which(name) for name in names if name) if found), None)


def main():
    program = sys.argv[1]
    chromium = find_chromium()
    if not chromium:
        print("SKIPPED: no Chromium in PATH or HARRIER_CHROMIUM, so that no browser saw the pages", file=sys.stderr)
        return 77
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="harrier-pages-"))
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser(chromium)
    try:
        with Server(program, "--actions", "--ill") as server:
            pictures(browser, server, folder, busy_pages(browser, server))
            plans_are_drawn(browser, server)
            nothing_hostile_runs(browser, server)
        with Server(program, "--empty") as server:
            pictures(browser, server, folder, {"overview": "/", "statements": "/statements", "sessions": "/sessions"}, "empty-")
        with Server(program, "--many") as server:
            many_and_long_statements_are_shown(browser, server)
            browser.go(f"{server.url}/statements")
            long = browser.evaluate(f"{link_to('INSERT INTO t VALUES')}.getAttribute('href')")
            pictures(browser, server, folder, {"statements": "/statements", "long": long}, "many-")
        with Server(program, "--actions", "--moving") as server:
            refreshes_and_stays_where_it_is(browser, server)
            works_without_scripts(browser, server)
            cancels_and_ends(browser, server)
        tells_when_the_server_is_gone(browser, program)
    finally:
        browser.close()
    print(f"the pages work in {chromium}; pictures are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
