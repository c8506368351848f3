"""A place where scripts that start clusters run: stand-ins for every command that would leave this machine."""

import shlex
import subprocess
from pathlib import Path

STAND_IN = Path(__file__).with_name("cluster_stand_in.sh")
COMMANDS = ("srun", "scontrol", "ray", "ssh", "metalforge", "hostname", "getent", "ip")


class Stand:
    """A folder in which scripts run among stand-ins, and what they called there."""

    def __init__(self, folder, commands=COMMANDS):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        stand_in = self.bin / "stand-in"
        stand_in.write_text(STAND_IN.read_text())
        stand_in.chmod(0o755)
        for command in commands:
            (self.bin / command).symlink_to(stand_in)
        self.told(plan="0", state="JobState=RUNNING", addresses="203.0.113.7 10.0.0.1", called="")
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "STAND": str(folder),
            "SLURM_JOB_ID": "42",
            "SLURM_JOB_NODELIST": "n1,n2,n3",
            "SLURM_CPUS_ON_NODE": "16",
            "RAY_AUTH_TOKEN": "of-another-cluster",
        }

    def told(self, **files):
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def started(self, text, *arguments, stderr=subprocess.PIPE, **environment):
        script = self.folder / "script.sh"
        script.write_text(text)
        command = ["bash", str(script), *arguments]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )

    def run(self, text, *arguments, timeout=30, **environment):
        process = self.started(text, *arguments, **environment)
        self.said = process.communicate(timeout=timeout)[1]
        return process.returncode

    @property
    def called(self):
        """Every call: the host, the command, its arguments."""
        lines = [line.split("\t") for line in (self.folder / "called").read_text().splitlines()]
        return [(host, name, shlex.split(rest)) for host, name, rest in lines]

    def of(self, name, *first):
        return [words for _, what, words in self.called if what == name and words[: len(first)] == list(first)]
