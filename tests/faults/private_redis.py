"""A real redis-server for trials."""

import secrets
import subprocess
import time

from isolation import die_with_parent, free_port


class Redis:
    def __init__(self, folder, lab=None):
        self.port, self.password = free_port(), secrets.token_hex(16)
        self._folder, self._lab = folder, lab
        self._process = None
        self.restart()

    def url(self, host):
        return f"redis://{host}:{self.port}/0"

    @property
    def pid(self):
        return self._process.pid

    def restart(self):
        self.end()
        command = ["redis-server", "--port", str(self.port), "--save", "", "--dir", self._folder,
                   "--requirepass", self.password, "--protected-mode", "no"]
        if self._lab is not None:
            command = self._lab.command("head", command)
        with open(f"{self._folder}/redis.log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             preexec_fn=die_with_parent)
        end = time.monotonic() + 20
        while self.ask("PING") != "PONG":
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(f"redis-server does not answer at port {self.port}")
            time.sleep(0.02)

    def ask(self, *words):
        command = ["redis-cli", "-p", str(self.port), "--no-auth-warning", "-a", self.password, *words]
        if self._lab is not None:
            command = self._lab.command("head", command)
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def immortal_keys(self):
        """Keys of ours without a time to live."""
        keys = self.ask("--scan", "--pattern", "pushpull:*").split()
        return [key for key in keys if int(self.ask("TTL", key)) < 0 and self.ask("EXISTS", key) == "1"]

    def end(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
