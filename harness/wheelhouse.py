"""An offline bundle: wheels of what renders the site, for a GPU machine in a closed network that has its own torch."""
import argparse
import hashlib
import subprocess
import sys

from harness.snippet import ROOT

FOLDER = ROOT / "wheelhouse"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17, 12, 5)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
HOW_TO = """In a copy of the project, with this folder in it as wheelhouse/, on the GPU machine:

(cd wheelhouse && sha256sum --quiet -c SHA256SUMS)
python3 -m pip install --no-index --no-deps --no-compile --target wheelhouse/unpacked wheelhouse/*.whl
export PYTHONPATH=$PWD/wheelhouse/unpacked
python3 -m nox --no-venv -s build
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="nox -s wheelhouse --", description=__doc__)
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="of the GPU machine")
    parser.add_argument("--with-jieba", action="store_true", help="words in the Chinese search; 18 MiB more, built here")
    parser.add_argument("projects", nargs="+", help="what to bundle, with all that it needs")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.whl"):
        old.unlink()
    download(arguments.python, arguments.projects)
    if arguments.with_jieba:
        pip("wheel", "--no-deps", "-w", str(FOLDER), "-c", "constraints.txt", "jieba")
    wheels = sorted(FOLDER.glob("*.whl"))
    sums = "".join(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n" for wheel in wheels)
    (FOLDER / "SHA256SUMS").write_text(sums, encoding="utf-8")
    (FOLDER / "HOW-TO.txt").write_text(HOW_TO, encoding="utf-8")
    mib = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    print(f"wheelhouse/: {len(wheels)} wheels, {mib:.1f} MiB; how to use it is in wheelhouse/HOW-TO.txt")


def download(python: str, projects: list[str]) -> None:
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    pip("download", "--dest", str(FOLDER), "--only-binary=:all:", "--implementation", "cp", "--python-version", python,
        *platforms, "-c", "constraints.txt", *projects)


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *words], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
