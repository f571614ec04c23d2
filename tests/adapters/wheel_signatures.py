"""Hook points in the published wheels of SGLang and vLLM: names and parameters, read from the source and never imported.

`python tests/adapters/wheel_signatures.py --write` renews docs/sglang-hooks.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))

from engine.adapters.hooks import Hook  # noqa: E402
from engine.adapters.sglang_hooks import HOOKS  # noqa: E402

VERSIONS = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")
CACHE = REPOSITORY / "build" / "wheels"
PAGE = REPOSITORY / "docs" / "sglang-hooks.md"
HEAD = """\
# Hook points of the SGLang recorder

The functions that the recorder attaches to ([attach-sglang.md](attach-sglang.md)), and their parameters in each published
version; the handler reads those in bold. Made by `python tests/adapters/wheel_signatures.py --write` from the wheels; a
test compares.
"""


class NoWheels(Exception):
    """The wheels cannot be fetched; says why."""


def wheels() -> dict[str, zipfile.ZipFile]:
    """The wheel of each version of SGLang, fetched once. Raises NoWheels."""
    return {version: wheel("sglang", version) for version in VERSIONS}


def wheel(package: str, version: str) -> zipfile.ZipFile:
    """A published wheel, fetched once. Raises NoWheels."""
    CACHE.mkdir(parents=True, exist_ok=True)
    name = f"{package.replace('-', '_')}-{version}-*.whl"
    if found := sorted(CACHE.glob(name)):
        return zipfile.ZipFile(found[0])
    fetch = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.11",
        "--dest", str(CACHE), f"{package}=={version}",
    ]  # fmt: skip
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise NoWheels(f"{package} {version} was not there within 120 s") from None
    found = sorted(CACHE.glob(name))
    if done.returncode or not found:
        raise NoWheels(f"{package} {version} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
    return zipfile.ZipFile(found[0])


def parameters(wheel: zipfile.ZipFile, hook: Hook) -> list[str] | None:
    """Names of the parameters of a hook's function; None where this version has no such function."""
    parts = hook.target.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        file = "/".join(parts[:cut]) + ".py"
        if file in wheel.namelist():
            return _parameters_in(wheel, file, parts[cut:])
    return None


def _parameters_in(wheel: zipfile.ZipFile, file: str, names: list[str]) -> list[str] | None:
    tree = ast.parse(wheel.read(file))
    if len(names) == 1:
        return _of(tree.body, names[0])
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    owner = classes.get(names[0])
    if owner is None:
        return None
    own = _of(owner.body, names[1])
    if own is not None:
        return own
    for base in owner.bases:  # inherited: in this file, or imported by name into it
        name = ast.unparse(base)
        if name in classes:
            found = _parameters_in(wheel, file, [name, names[1]])
        else:
            found = next(
                (
                    _parameters_in(wheel, f"{node.module.replace('.', '/')}.py", [name, names[1]])
                    for node in tree.body
                    if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}
                    and f"{node.module.replace('.', '/')}.py" in wheel.namelist()
                ),
                None,
            )  # fmt: skip
        if found is not None:
            return found
    return None


def _of(body: list[ast.stmt], name: str) -> list[str] | None:
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            taken = node.args
            return [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return None


def page(found: dict[str, zipfile.ZipFile]) -> str:
    """docs/sglang-hooks.md."""
    lines = [HEAD]
    for hook in HOOKS:
        by_version = {version: parameters(wheel, hook) for version, wheel in found.items()}
        lines += [
            f"\n`{hook.target}`, {hook.kind.lower()}, rows of `{hook.table}`"
            + (f" ({hook.backend})" if hook.backend else "")
            + "\n"
        ]
        for taken in dict.fromkeys(tuple(names) if names is not None else None for names in by_version.values()):
            versions = [
                version
                for version, names in by_version.items()
                if (tuple(names) if names is not None else None) == taken
            ]
            shown = (
                "not there"
                if taken is None
                else ", ".join(f"**{name}**" if name in hook.needs else name for name in taken)
            )
            lines.append(f"- {', '.join(versions)}: {shown}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page(wheels())
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
