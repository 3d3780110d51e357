"""cog in a virtual environment of its own, because its requirements are not ours.

The environment is made once for its list of packages and kept in the user's cache.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jobwire.local import StartFailed, free_port
from jobwire.spawn import ChildProcess, spawn

REQUIREMENTS: Final = Path(__file__).parent / "cog-requirements.txt"
# Where cog keeps the files of its predictions, whatever TMPDIR says.
PREDICTIONS: Final = Path("/tmp/coglet/predictions")  # noqa: S108 - cog's own
_INSTALL_S: Final = 300
_READY_S: Final = 60.0

_MODEL: Final = '''
import tempfile
from cog import BaseRunner, Input, Path
from PIL import Image, ImageChops, ImageFilter, ImageOps


class Predictor(BaseRunner):
    """A cartoon of a photo; with the prompt `negative`, its negative."""

    def run(self, image: Path = Input(), prompt: str = Input(default="")) -> Path:
        picture = ImageOps.exif_transpose(Image.open(str(image))).convert("RGB")
        picture.thumbnail((1280, 1280))
        if "negative" in prompt.lower():
            result = ImageOps.invert(picture)
        else:
            smooth = picture
            for _ in range(3):
                smooth = smooth.filter(ImageFilter.MedianFilter(5))
            colours = ImageOps.posterize(ImageOps.autocontrast(smooth, cutoff=1), 3)
            edges = smooth.convert("L").filter(ImageFilter.FIND_EDGES)
            lines = edges.point(lambda value: 0 if value > 24 else 255).convert("RGB")
            result = ImageChops.multiply(colours, lines)
        output = Path(tempfile.mkdtemp()) / "result.png"
        result.save(str(output))
        return output
'''


def environment(cache: Path, notify: Callable[[str], None] = lambda _: None) -> Path:
    """The Python with cog in it; made on first use, by one process at a time."""
    listed = REQUIREMENTS.read_bytes() + sys.version.encode()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartFailed(
            f"cog is installed into {cache}, which cannot be created ({error.strerror}); "
            "set XDG_CACHE_HOME to a folder of yours"
        ) from error
    home = cache / f"cog-{hashlib.sha256(listed).hexdigest()[:12]}"
    with (cache / "cog.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            notify(f"installing cog into {home} (once)")
            shutil.rmtree(home, ignore_errors=True)
            _run(sys.executable, "-m", "venv", home)
            _run(
                home / "bin" / "python",
                *("-m", "pip", "--quiet", "--disable-pip-version-check"),
                *("install", "--requirement", REQUIREMENTS),
            )
            (home / "ready").touch()
    return home / "bin" / "python"


def user_cache() -> Path:
    """The folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobwire"


def open_predictions(folder: Path = PREDICTIONS) -> None:
    """Let every user of this machine run cog: its folder for predictions gets the mode of /tmp.

    Where a user may not write, the predictions of cog do not end: StartFailed says so first.
    """
    try:
        for each in (folder.parent, folder):
            each.mkdir(exist_ok=True)
            opened = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(opened).st_uid == os.geteuid():
                    os.fchmod(opened, 0o1777)
            finally:
                os.close(opened)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else "this user may not write there"
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
    if reason:
        raise StartFailed(
            f"cog keeps the files of its predictions in {folder}: {reason}; who owns it, or root, "
            f"runs: chmod 1777 {folder.parent} {folder}"
        )


class CogServer:
    """A cog server with the demo's model, on loopback."""

    def __init__(self, python: Path, folder: Path) -> None:
        open_predictions()
        # Each prediction leaves a folder there.
        self._temporary = folder / "temporary"
        self._temporary.mkdir(parents=True, exist_ok=True)
        (folder / "predict.py").write_text(_MODEL)
        self._log = folder / "cog.log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        variables = {
            **os.environ,
            # Its worker is started as `python`, found by PATH.
            "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PORT": str(port),
            "COG_PREDICT_TYPE_STUB": "predict.py:Predictor",
            "COG_LOG_LEVEL": "warning",
            "TMPDIR": str(self._temporary.absolute()),
        }
        with self._log.open("wb") as out:
            self._child: ChildProcess = spawn(
                [python, "-m", "cog.server.http", "--host", "127.0.0.1"],
                cwd=folder,
                env=variables,
                stdout=out,
                stderr=out,
                umask=0o077,
            )

    def wait_ready(self) -> None:
        """Wait until the model is set up; StartFailed with the end of its log."""
        deadline_s = time.monotonic() + _READY_S
        while time.monotonic() < deadline_s and self._child.exit_code() is None:
            if is_ready(self.url):
                return
            time.sleep(0.1)
        tail = self._log.read_text(errors="replace")[-500:].strip()
        raise StartFailed(f"cog did not start; the end of {self._log}: {tail}")

    def stop(self) -> None:
        """End it; it has nothing to keep."""
        self._child.kill()
        self._child.wait(10)
        shutil.rmtree(self._temporary, ignore_errors=True)


def is_ready(url: str) -> bool:
    """Whether a cog server is set up and takes predictions."""
    try:
        with urllib.request.urlopen(f"{url}/health-check", timeout=5) as answer:  # noqa: S310 - loopback
            return json.load(answer)["status"] in ("READY", "BUSY")
    except (OSError, ValueError):
        return False


def _run(*command: str | Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, capture_output=True, text=True, timeout=_INSTALL_S, check=False
    )
    if done.returncode:
        raise StartFailed(f"{' '.join(map(str, command))} failed: {done.stderr[-500:].strip()}")
