"""docs/protocols/redis.md, typed as written: every command and every program of it, in order.

`guide.py PAGE PORT PYTHON NODE GO`: PORT is for HTTP; the others are an interpreter, and two
folders where programs find their packages. What a block prints must contain the lines of the
```text block after it, where an ellipsis stands for anything within a line.
"""

import pathlib
import re
import subprocess
import sys

page, port, python, node, go = sys.argv[1:]
text = pathlib.Path(page).read_text()
# The page talks to the ports that are so by default.
text = text.replace("7401", str(int(port) + 1)).replace("7400", port)


def run_shell(block):
    return ["bash", "-eu", "-o", "pipefail", "-c", block], None


def run_python(block):
    return [python, "-c", block], None


def run_js(block):
    pathlib.Path(node, "guide.mjs").write_text(block)
    return ["node", "guide.mjs"], node


def run_go(block):
    folder = pathlib.Path(go, "guide")
    folder.mkdir(exist_ok=True)
    (folder / "main.go").write_text(block)
    return ["go", "run", "-mod=readonly", "./guide"], go


RUN = {"sh": run_shell, "python": run_python, "js": run_js, "go": run_go}


def appears(line, output):
    parts = [re.escape(part) for part in line.split("…")]
    return re.search(".*".join(parts), output) is not None


blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
assert len(blocks) > 12, "the page's commands were not found"
output, typed, count, failures = "", "", 0, 0
for language, block in blocks:
    if language == "text":
        missing = [line for line in block.splitlines() if not appears(line, output)]
        if missing:
            failures += 1
            print(f"{missing} is not said by:\n{typed}\n--- it said:\n{output}")
        continue
    count += 1
    typed = block
    arguments, folder = RUN[language](block)
    done = subprocess.run(
        arguments, cwd=folder, timeout=300, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = done.stdout
    if done.returncode != 0:
        failures += 1
        print(f"this failed:\n{typed}\n--- it said:\n{output}")
verdict = "FAILED" if failures else "ok"
print(f"test result: {verdict}. {max(count - failures, 0)} passed; {failures} failed")
sys.exit(1 if failures else 0)
