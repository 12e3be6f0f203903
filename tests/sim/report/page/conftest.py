"""A real headless Chromium, spoken to over a pipe in its own protocol (CDP): no driver, no package, no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from select import select
from time import monotonic
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
PATIENCE_S = 120.0
"""A busy machine is no failure."""


class Browser:
    """One page of a browser. `events` holds what it told unasked, in order."""

    def __init__(self, program: str, profile: Path) -> None:
        asked, self._ask = os.pipe()
        self._hear, told = os.pipe()
        # The protocol's own file descriptors are 3 and 4.
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(asked), str(told), program, *flags],
            pass_fds=(asked, told),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(asked)
        os.close(told)
        self._numbers = count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._ask, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        until = monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            assert select([self._hear], [], [], max(0.0, until - monotonic()))[0], "the browser says nothing"
            piece = os.read(self._hear, 1 << 20)
            assert piece, "the browser is gone"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, width: int, *, dark: bool = False, height: int = 900, scale: float = 1) -> None:
        """Load a page at a width, as a phone below 600 pixels, and wait until it is there."""
        phone = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """kind: Moved, Pressed or Released."""
        button = {} if kind == "Moved" else {"button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button)

    def key(self, key: str) -> None:
        """Press one."""
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions, since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [
            json.dumps(event["params"])
            for event in self.events
            if event.get("method") in kinds
            or (event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"))
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for, other than the page itself and what it carries."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("file:", "data:"))]

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot as PNG."""
        told = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        """End it, and wait until it has."""
        self._session = None
        with suppress(AssertionError, OSError):
            self.ask("Browser.close")
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._ask)
        os.close(self._hear)


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[Browser]:
    """One for all tests of a process; a test that wants it is skipped where none is installed."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here")
    browser = Browser(program, tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()
