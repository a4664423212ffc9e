"""A real Slurm on this machine: a controller in the head of a lab, a node in each of its hosts.

    with SlurmCluster(lab, folder) as slurm:
        slurm.run(["srun", "-N2", "hostname"], check=True)

munged, slurmctld and one slurmd per host run as children of this process, with everything they write
in `folder`; all of them, and the jobs, end with the `with` block (the lab ends what is left in it).
"""

import os
import pathlib
import secrets
import shutil
import subprocess
import time

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=head(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=3
MinJobAge=60
InactiveLimit=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs():
    """Debian packages of what is not installed."""
    return sorted({package for program, package in PROGRAMS.items()
                   if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None})


class SlurmCluster:
    def __init__(self, lab, folder, cpus=4):
        self.lab = lab
        self.folder = pathlib.Path(folder)
        self.cpus = cpus
        self._daemons = []

    def environment(self, extra=None):
        # Nothing of a surrounding Slurm.
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("SLURM", "PUSHPULL_", "OMPI_", "PMIX_"))}
        path = f"{clean.get('PATH', '')}:/usr/sbin:/sbin"
        return {**clean, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf"), **(extra or {})}

    def command(self, argv):
        """`argv` as it is run where users log in: in the lab's head."""
        return self.lab.command("head", argv)

    def run(self, argv, env=None, **options):
        options.setdefault("timeout", 120)
        return subprocess.run(self.command(argv), env=self.environment(env), capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, check=False, **options)

    def _start(self, host, argv):
        log = open(self.folder / f"{pathlib.Path(argv[0]).name}-{host}.out", "wb")
        with log:
            daemon = subprocess.Popen(self.lab.command(host, argv), env=self.environment(),
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._daemons.append(daemon)

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        for host in self.lab.hosts:  # the nodes share a file system, but PMIx writes in each alone
            (self.folder / f"tmp-{host.name}").mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs={self.cpus} "
                          f"RealMemory=100 State=UNKNOWN" for host in self.lab.hosts)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder, nodes=nodes))
        try:
            self._start("head", ["munged", "--foreground", "--force",
                                 f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                                 f"--pid-file={self.folder}/munged.pid",
                                 f"--log-file={self.folder}/munged.log",
                                 f"--seed-file={self.folder}/munged.seed"])
            self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
            self._start("head", ["slurmctld", "-D", "-i"])
            for host in self.lab.hosts:
                self._start(host.name, ["slurmd", "-D", "-N", host.name])
            self._wait(self._nodes_are_idle, "the nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _nodes_are_idle(self):
        done = self.run(["sinfo", "-h", "-N", "-o", "%T"])
        return done.returncode == 0 and done.stdout.split() == ["idle"] * len(self.lab.hosts)

    def _wait(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or any(d.poll() is not None for d in self._daemons):
                raise RuntimeError(f"Slurm does not come up, waiting for {what}:\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        texts = []
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]):
            lines = path.read_text(errors="replace").splitlines()[-15:]
            texts += [f"--- {path.name}", *lines]
        return "\n".join(texts)

    def job_state(self, job):
        done = self.run(["scontrol", "show", "job", str(job)])
        fields = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
        return fields.get("JobState", "?"), fields.get("ExitCode", "?")

    def wait_for_job(self, job, seconds=120):
        """-> ("COMPLETED", "0:0") and so on."""
        end = time.monotonic() + seconds
        while True:
            state = self.job_state(job)
            if state[0] not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"):
                return state
            if time.monotonic() > end:
                raise RuntimeError(f"job {job} is still {state[0]}:\n{self.logs()}")
            time.sleep(0.2)

    def __exit__(self, *_):
        for daemon in reversed(self._daemons):
            if daemon.poll() is None:
                daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
