#include "launcher/plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "launcher/environment_block.h"
#include "launcher/name_list.h"
#include "launcher/starters.h"

namespace pushpull::launcher {
namespace {

using Variables = std::map<std::string, std::string>;
using Flags = std::map<std::string, std::string>;

Surroundings surroundings(std::vector<std::string> environment = {"PATH=/bin", "HOME=/home/me"}) {
  Surroundings around;
  around.environment = std::move(environment);
  around.folder = "/opt/pushpull/bin";
  around.working_folder = "/home/me";
  around.own_names = {"here", "10.0.0.1"};
  around.address = "10.0.0.1";
  around.token = "made-up-token";
  around.cores = {0, 1, 2, 3};
  around.run = "abcd";
  around.secret = "made-up-secret";
  around.redis_password = "made-up-password";
  around.rendezvous_port = 30001;
  around.redis_port = 30002;
  return around;
}

Result<Plan> plan(const Flags& flags, const Surroundings& around = surroundings(),
                  const std::vector<std::string>& command = {"python", "train.py"},
                  const std::string& file = {}) {
  const EnvironmentBlock block(around.environment);
  const auto config = Config::load(flags, [&](std::string_view name) { return block.get(name); });
  if (!config) return fail(config.error());
  return make_plan(*config, file, command, around);
}

std::string variable(const Process& process, std::string_view name) {
  return EnvironmentBlock(process.environment).get(name).value_or("(not set)");
}

std::string error_of(const Flags& flags, const Surroundings& around = surroundings()) {
  const auto result = plan(flags, around);
  return result ? "no error" : result.error().message();
}

TEST(Plan, LocalWorkersMeetAtTheReservedPort) {
  const auto made = plan({{"workers", "3"}});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->engine, "local");
  EXPECT_FALSE(made->starter);
  EXPECT_FALSE(made->redis);
  ASSERT_EQ(made->workers.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const Process& worker = made->workers[static_cast<size_t>(rank)];
    EXPECT_EQ(worker.argv, (std::vector<std::string>{"python", "train.py"}));
    EXPECT_EQ(variable(worker, "PUSHPULL_RANK"), std::to_string(rank));
    EXPECT_EQ(variable(worker, "PUSHPULL_LOCAL_RANK"), std::to_string(rank));
    EXPECT_EQ(variable(worker, "PUSHPULL_SIZE"), "3");
    EXPECT_EQ(variable(worker, "PUSHPULL_RENDEZVOUS"), "tcp://127.0.0.1:30001");
    EXPECT_EQ(variable(worker, "PUSHPULL_JOB"), "run-abcd");
    EXPECT_EQ(variable(worker, "PUSHPULL_SECRET"), "made-up-secret");
    EXPECT_EQ(variable(worker, "MXNET_KVSTORE_BACKEND"), "gloo");
    EXPECT_EQ(variable(worker, "PATH"), "/opt/pushpull/bin:/bin");
    EXPECT_EQ(variable(worker, "HOME"), "/home/me");
    EXPECT_TRUE(worker.cores.empty());
  }
}

TEST(Plan, OneWorkerWhereNothingIsSaid) {
  const auto made = plan({});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->workers.size(), 1u);
}

TEST(Plan, MpiGoesThroughMpirunAndShims) {
  const auto made = plan({{"backend", "mpi"}, {"workers", "2"}});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->engine, "mpirun");
  ASSERT_TRUE(made->starter);
  EXPECT_EQ(made->starter->argv,
            (std::vector<std::string>{"mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2",
                                      "/opt/pushpull/bin/pushpull", "shim"}));
  EXPECT_EQ(variable(*made->starter, "PUSHPULL_SECRET"), "(not set)");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_RENDEZVOUS"), "(not set)");
}

TEST(Plan, RootIsAllowedOnlyToRoot) {
  Surroundings around = surroundings();
  around.is_root = true;
  const auto made = plan({{"backend", "mpi"}}, around);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->starter->argv[1], "--allow-run-as-root");
}

TEST(Plan, RendezvousForAnotherBackendDoesNotMatterToMpi) {
  const auto made =
      plan({{"backend", "mpi"}, {"rendezvous.url", "redis://h/0"}, {"redis.start", "true"}});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_FALSE(made->redis);
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_RENDEZVOUS"), "(not set)");
}

TEST(Plan, PrivateRedisGetsItsPasswordOnStandardInput) {
  const auto made = plan({{"backend", "gloo-redis"}, {"redis.start", "true"}});
  ASSERT_TRUE(made) << made.error().message();
  ASSERT_TRUE(made->redis);
  EXPECT_EQ(made->redis->argv, (std::vector<std::string>{"redis-server", "-"}));
  EXPECT_NE(made->redis->input_text.find("requirepass made-up-password\n"), std::string::npos);
  EXPECT_NE(made->redis->input_text.find("bind 127.0.0.1\nport 30002\n"), std::string::npos);
  EXPECT_NE(made->redis->input_text.find("save \"\"\n"), std::string::npos);
  EXPECT_EQ(variable(*made->redis, "PUSHPULL_REDIS_PASSWORD"), "(not set)");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_RENDEZVOUS"), "redis://127.0.0.1:30002/0");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_REDIS_PASSWORD"), "made-up-password");
}

TEST(Plan, GivenRendezvousSecretAndJobStay) {
  const auto made =
      plan({{"job", "nightly"}},
           surroundings({"PUSHPULL_RENDEZVOUS=file:///nfs/job", "PUSHPULL_SECRET=mine"}));
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_RENDEZVOUS"), "file:///nfs/job");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_SECRET"), "mine");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_JOB"), "nightly");
}

TEST(Plan, FlagsForWorkersBecomeVariablesButNotTheLaunchers) {
  const auto made = plan({{"tuning.chunk_bytes", "2KiB"}, {"launch.grace", "9s"}});
  ASSERT_TRUE(made);
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_CHUNK_BYTES"), "2KiB");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_GRACE"), "(not set)");
  EXPECT_EQ(made->grace, std::chrono::seconds(9));
}

TEST(Plan, WorkersAreTheLaunchersNotWhatIsAround) {
  const auto made =
      plan({{"workers", "2"}},
           surroundings({"PUSHPULL_RANK=7", "SLURM_NTASKS=8", "SLURM_PROCID=3", "RANK=5",
                         "WORLD_SIZE=9", "DMLC_ROLE=server", "DMLC_NUM_WORKER=4"}));
  ASSERT_TRUE(made) << made.error().message();
  const Process& worker = made->workers[1];
  EXPECT_EQ(variable(worker, "PUSHPULL_RANK"), "1");
  for (const char* name :
       {"SLURM_NTASKS", "SLURM_PROCID", "RANK", "WORLD_SIZE", "DMLC_ROLE", "DMLC_NUM_WORKER"}) {
    EXPECT_EQ(variable(worker, name), "(not set)") << name;
  }
  EXPECT_TRUE(std::any_of(made->notes.begin(), made->notes.end(), [](const std::string& note) {
    return note.find("DMLC_NUM_WORKER, DMLC_ROLE") != std::string::npos;
  }));
}

TEST(Plan, ConfigurationFileIsHandedDownByItsFullName) {
  const auto made = plan({}, surroundings(), {"true"}, "jobs/a.yaml");
  ASSERT_TRUE(made);
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_CONFIG"), "/home/me/jobs/a.yaml");
}

TEST(Plan, SharesOfCoresCoverAllAndDoNotOverlap) {
  for (const int workers : {1, 2, 3, 4}) {
    const auto made = plan({{"launch.bind", "share"}, {"workers", std::to_string(workers)}});
    ASSERT_TRUE(made);
    std::vector<int> all;
    for (const Process& worker : made->workers) {
      EXPECT_FALSE(worker.cores.empty());
      all.insert(all.end(), worker.cores.begin(), worker.cores.end());
    }
    EXPECT_EQ(all, (std::vector<int>{0, 1, 2, 3}));
  }
  const auto crowded = plan({{"launch.bind", "share"}, {"workers", "6"}});
  ASSERT_TRUE(crowded);
  EXPECT_EQ(crowded->workers[5].cores, std::vector<int>{1});
}

TEST(Plan, InputGoesToRank0UnlessItIsATerminal) {
  const auto piped = plan({{"workers", "2"}});
  ASSERT_TRUE(piped);
  EXPECT_EQ(piped->workers[0].input, Input::kInherited);
  EXPECT_EQ(piped->workers[1].input, Input::kNothing);
  Surroundings around = surroundings();
  around.is_terminal = true;
  EXPECT_EQ(plan({}, around)->workers[0].input, Input::kNothing);
}

TEST(Plan, ContradictionsAreNamed) {
  EXPECT_EQ(
      error_of({{"backend", "gluo"}}),
      "unknown backend 'gluo' (flag --backend); known are gloo, gloo-redis, mpi, self; did you "
      "mean 'gloo'?");
  EXPECT_EQ(error_of({{"backend", "mpi"}, {"launch.engine", "local"}}),
            "the mpi backend needs an MPI starter; use --engine mpirun, or leave it out");
  EXPECT_EQ(
      error_of({{"redis.start", "true"}, {"rendezvous.url", "redis://h/0"}}),
      "redis.start (flag redis.start) and a rendezvous URL (flag --rendezvous) exclude each other");
  EXPECT_EQ(
      error_of({{"backend", "gloo_redis"}, {"rendezvous.url", "file:///x"}}),
      "backend gloo-redis meets at a Redis server, but the rendezvous URL is 'file:///x' (flag "
      "--rendezvous); use backend gloo, or a redis:// URL");
  EXPECT_EQ(error_of({{"backend", "self"}, {"workers", "2"}}),
            "backend self is for one worker, but 2 were asked for (flag --workers)");
  EXPECT_NE(error_of({}, surroundings({"PMI_SIZE=4"})).find("PMI_SIZE=4"), std::string::npos);
  const auto nothing = plan({}, surroundings(), {});
  ASSERT_FALSE(nothing);
  EXPECT_NE(nothing.error().message().find("no command given"), std::string::npos);
}

TEST(Plan, BackendsOfOthersAreKnownByTheirModules) {
  Surroundings around = surroundings();
  around.backends = {"carrier-pigeon"};
  EXPECT_EQ(error_of({{"backend", "carrier_pigeon"}}, around), "no error");
}

TEST(Plan, DescriptionCanBeRunByAShellAndHidesSecrets) {
  const Surroundings around = surroundings({"PATH=/bin", "DMLC_ROLE=server"});
  const auto made =
      plan({{"workers", "2"}, {"launch.bind", "share"}}, around, {"echo", "it's", "", "$HOME"});
  ASSERT_TRUE(made);
  const std::string text = describe(*made, around.environment);
  EXPECT_NE(text.find("taskset -c 2,3 env -u DMLC_ROLE PATH=/opt/pushpull/bin:\"$PATH\""),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("echo 'it'\"'\"'s' '' '$HOME'\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("made-up"), std::string::npos);
}

std::string line_of(const Process& process) {
  std::string line;
  for (const std::string& word : process.argv) line += (line.empty() ? "" : " ") + word;
  return line;
}

TEST(Plan, OtherHostsAreReachedByMpirun) {
  const auto made = plan({{"launch.hosts", "a:2,b:2"}});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->engine, "mpirun");
  EXPECT_TRUE(made->remote);
  EXPECT_TRUE(made->meet_at_rank_0);
  ASSERT_EQ(made->workers.size(), 4u);
  EXPECT_EQ(line_of(*made->starter),
            "mpirun --oversubscribe --bind-to none --host a:2,b:2 --map-by slot -x "
            "PUSHPULL_LAUNCH_TOKEN -n 4 /opt/pushpull/bin/pushpull shim");
  EXPECT_EQ(variable(*made->starter, "PUSHPULL_LAUNCH_TOKEN"), "made-up-token");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_LAUNCH_TOKEN"), "(not set)");
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_RENDEZVOUS"), "(not set)");
}

TEST(Plan, HostsThatAreThisOneNeedNoStarter) {
  for (const char* hosts : {"here:3", "localhost:3", "10.0.0.1:3", "127.0.0.1:3"}) {
    const auto made = plan({{"launch.hosts", hosts}});
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(made->engine, "local");
    EXPECT_FALSE(made->remote);
    EXPECT_EQ(made->workers.size(), 3u);
  }
}

TEST(Plan, FewerWorkersThanSlotsFillTheFirstHosts) {
  const auto made = plan({{"launch.hosts", "a:2,b:2,c"}, {"workers", "3"}});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_NE(line_of(*made->starter).find("--host a:2,b:1 "), std::string::npos);
}

TEST(Plan, OtherHostsGetOnlyWhatIsForwarded) {
  const std::vector<std::string> environment = {
      "PATH=/bin", "HOME=/home/me",  "OMP_NUM_THREADS=1",      "AWS_SECRET=no",
      "LC_ALL=C",  "SLURM_PROCID=3", "PUSHPULL_CONFIG=/x.yaml"};
  const auto made = plan({{"launch.hosts", "a,b"}}, surroundings(environment), {"true"}, "");
  ASSERT_FALSE(made) << "the file does not exist";
  Surroundings around = surroundings(environment);
  around.environment.pop_back();
  const auto automatic = plan({{"launch.hosts", "a,b"}, {"tuning.chunk_bytes", "2KiB"}}, around);
  ASSERT_TRUE(automatic) << automatic.error().message();
  const Process& worker = automatic->workers[1];
  EXPECT_EQ(variable(worker, "OMP_NUM_THREADS"), "1");
  EXPECT_EQ(variable(worker, "LC_ALL"), "C");
  EXPECT_EQ(variable(worker, "PUSHPULL_CHUNK_BYTES"), "2KiB");
  EXPECT_EQ(variable(worker, "PATH"), "/opt/pushpull/bin:/bin");
  for (const char* name : {"HOME", "AWS_SECRET", "SLURM_PROCID"}) {
    EXPECT_EQ(variable(worker, name), "(not set)") << name;
  }
  const auto listed =
      plan({{"launch.hosts", "a,b"}, {"launch.forward", "HOME,OMP_*,^OMP_NUM_*"}}, around);
  ASSERT_TRUE(listed);
  EXPECT_EQ(variable(listed->workers[0], "HOME"), "/home/me");
  EXPECT_EQ(variable(listed->workers[0], "OMP_NUM_THREADS"), "(not set)");
}

TEST(Plan, PrivateRedisListensWhereOtherHostsReachIt) {
  const auto made =
      plan({{"backend", "gloo-redis"}, {"redis.start", "true"}, {"launch.hosts", "a,b"}});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_NE(made->redis->input_text.find("bind 127.0.0.1 10.0.0.1\n"), std::string::npos);
  EXPECT_EQ(variable(made->workers[0], "PUSHPULL_RENDEZVOUS"), "redis://10.0.0.1:30002/0");
}

const std::vector<std::string> kAllocation = {"PATH=/bin", "SLURM_JOB_ID=42", "SLURM_NTASKS=4",
                                              "SLURM_JOB_NUM_NODES=2"};

TEST(Plan, InsideAnAllocationSrunStartsAllTasks) {
  const auto made = plan({}, surroundings(kAllocation));
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->engine, "slurm");
  EXPECT_EQ(made->workers.size(), 4u);
  EXPECT_TRUE(made->meet_at_rank_0);
  EXPECT_EQ(line_of(*made->starter),
            "srun --ntasks=4 --distribution=block --cpu-bind=none --kill-on-bad-exit=0 --wait=0 "
            "--input=none --mpi=none --export=ALL /opt/pushpull/bin/pushpull shim");
  EXPECT_NE(made->notes.front().find("in Slurm job 42"), std::string::npos);
  const auto mpi = plan({{"backend", "mpi"},
                         {"launch.forward", "PATH"},
                         {"launch.starter_args", "--partition='a b'"}},
                        surroundings(kAllocation));
  ASSERT_TRUE(mpi) << mpi.error().message();
  EXPECT_EQ(line_of(*mpi->starter),
            "srun --ntasks=4 --distribution=block --cpu-bind=none --kill-on-bad-exit=0 --wait=0 "
            "--input=none --mpi=pmix --export=PUSHPULL_LAUNCH_TOKEN,PATH --partition=a b "
            "/opt/pushpull/bin/pushpull shim");
}

TEST(Plan, AllocationsWithoutTasksHaveOneWorkerPerNode) {
  const auto made = plan({}, surroundings({"SLURM_JOB_ID=42", "SLURM_JOB_NUM_NODES=3"}));
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->workers.size(), 3u);
}

TEST(Plan, LocalStaysLocalInsideAnAllocation) {
  const auto made = plan({{"launch.engine", "local"}}, surroundings(kAllocation));
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->engine, "local");
  EXPECT_FALSE(made->remote);
}

TEST(Plan, OutsideAnAllocationSlurmGetsAScript) {
  const auto made = plan({{"launch.engine", "slurm"},
                          {"workers", "4"},
                          {"job", "my job"},
                          {"tuning.chunk_bytes", "2KiB"},
                          {"launch.starter_args", "-t 10 --partition=gpu"}},
                         surroundings(), {"python", "it's.py"}, "jobs/a.yaml");
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(
      made->script,
      "#!/bin/sh\n#SBATCH --job-name='my job'\n#SBATCH --ntasks=4\n#SBATCH -t 10\n"
      "#SBATCH --partition=gpu\n# Made by pushpull run --engine slurm; submit it by sbatch.\n"
      "exec /opt/pushpull/bin/pushpull run --engine slurm -c /home/me/jobs/a.yaml --workers 4 "
      "--job 'my job' --set tuning.chunk_bytes=2KiB -- python 'it'\"'\"'s.py'\n");
  EXPECT_TRUE(made->workers.empty());
}

TEST(Plan, ScriptsNeedNoAddressButJobsDo) {
  Surroundings around = surroundings();
  around.address_error = "no interface of host here fits";
  EXPECT_EQ(error_of({{"launch.engine", "slurm"}, {"workers", "2"}}, around), "no error");
  EXPECT_EQ(error_of({{"launch.hosts", "a,b"}}, around), around.address_error);
  EXPECT_EQ(error_of({{"workers", "2"}}, around), around.address_error);
}

TEST(Hosts, ComeFromTheFlagOrTheFile) {
  const auto hosts = [](const Flags& flags, std::string_view hostfile) {
    const auto config = Config::load(flags, [](auto) { return std::nullopt; });
    return configured_hosts(*config, hostfile, {"here"});
  };
  EXPECT_TRUE(hosts({}, "")->empty());
  EXPECT_EQ(host_list(*hosts({{"launch.hosts", "a:2,b"}}, "")), "a:2,b:1");
  const auto of_file = hosts({{"launch.hostfile", "f"}}, "here\nlocal.host\n");
  ASSERT_TRUE(of_file) << of_file.error().message();
  EXPECT_EQ(first_other_host(*of_file, {"here"})->name, "local.host");
  EXPECT_EQ(first_other_host(*of_file, {"here", "local.host"}), of_file->end());
  EXPECT_EQ(hosts({{"launch.hostfile", "f"}}, "a\nb x\n").error().message(),
            "f:2: 'x' is not understood; write a host like 'b slots=2'");
  EXPECT_EQ(hosts({{"launch.hosts", "a"}, {"launch.hostfile", "f"}}, "b").error().message(),
            "hosts (flag --hosts) and a hostfile (flag --hostfile) exclude each other");
}

TEST(Hosts, ListsAreReadStrictly) {
  const OwnNames own = {"here"};
  const auto hosts = parse_hosts(" a:2, b ,here:3", "flag --hosts", own);
  ASSERT_TRUE(hosts) << hosts.error().message();
  EXPECT_EQ(host_list(*hosts), "a:2,b:1,here:3");
  EXPECT_EQ(slots_of(*hosts), 6);
  EXPECT_EQ(host_list(place(*hosts, 4)), "a:2,b:1,here:1");
  for (const char* wrong : {"", ",", "a,", "a b", "a:", "a:0", "a:-1", "a:x", "a:1:2", "-a", "a;b",
                            "a,a", "here,localhost", "[::1]:2", "a/b", "a:99999"}) {
    EXPECT_FALSE(parse_hosts(wrong, "flag --hosts", own)) << wrong;
  }
}

TEST(Hosts, FilesTakeWhatOpenMpiWrites) {
  const auto hosts = parse_hostfile("# all\na slots=4\n\n b:2 # two\r\nc\n", "hosts", {});
  ASSERT_TRUE(hosts) << hosts.error().message();
  EXPECT_EQ(host_list(*hosts), "a:4,b:2,c:1");
  EXPECT_EQ((*hosts)[1].where, "hosts:4");
}

TEST(Starters, WordsAreSplitLikeAShellDoes) {
  const auto words = split_words(R"( a  'b c' "d'e" f\ g '' x"y"z )");
  ASSERT_TRUE(words);
  EXPECT_EQ(*words, (std::vector<std::string>{"a", "b c", "d'e", "f g", "", "xyz"}));
  EXPECT_FALSE(split_words("'a"));
  EXPECT_TRUE(split_words("")->empty());
}

TEST(NameList, LastThatFitsDecides) {
  const NameList names("A_*, ^A_B,A_B_C PATH");
  EXPECT_TRUE(names.has("A_X"));
  EXPECT_FALSE(names.has("A_B"));
  EXPECT_TRUE(names.has("A_B_C"));
  EXPECT_TRUE(names.has("PATH"));
  EXPECT_FALSE(names.has("PATHS"));
}

TEST(EnvironmentBlock, KeepsWhatItIsNotAskedToChange) {
  EnvironmentBlock block(
      {"A=1", "BASH_FUNC_f%%=() { :; }", "with.dot=x", "A=2", "NOEQUALS", "AB=3"});
  EXPECT_EQ(block.get("A"), "1");
  EXPECT_EQ(block.get("B"), std::nullopt);
  EXPECT_EQ(block.get("NOEQUALS"), std::nullopt);
  block.set("A", "new");
  EXPECT_EQ(block.entries(), (std::vector<std::string>{"BASH_FUNC_f%%=() { :; }", "with.dot=x",
                                                       "NOEQUALS", "AB=3", "A=new"}));
}

}  // namespace
}  // namespace pushpull::launcher
