//===- Launch.cpp - Starts the ranks of this machine and watches them -----===//
//
// One poll() over a signalfd and the ranks' stderr. Every rank leads a process
// group of its own, so that a control-C reaches the launcher alone, which hands
// it on, and so that killing a rank kills what it started. The kernel kills a
// rank whose launcher is gone.
//
//===----------------------------------------------------------------------===//

#include "hp/Runtime/Launch.h"
#include "llvm/ADT/StringExtras.h"
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace hp;
using llvm::StringRef;

using Clock = std::chrono::steady_clock;

/// What the other ranks have, after one failed, to end by themselves and to say
/// what they saw.
static constexpr auto grace = std::chrono::milliseconds(1000);

/// The longest message that is kept or piece of a line that is handed on.
static constexpr size_t longestLine = 4096;

extern char **environ;

//===----------------------------------------------------------------------===//
// What a rank writes
//===----------------------------------------------------------------------===//

namespace {
/// Hands on lines with the rank in front, and keeps the one that says why the
/// rank failed.
class RankOutput {
public:
  void setRank(int64_t rank) { prefix = "[rank " + llvm::utostr(rank) + "] "; }

  void add(StringRef text) {
    while (!text.empty()) {
      auto [line, rest] = text.split('\n');
      bool ends = line.size() < text.size();
      pending += line.take_front(longestLine);
      if (ends || pending.size() >= longestLine) {
        flush();
      }
      text = ends ? rest : StringRef();
    }
  }

  /// Hands on a last line that was not ended.
  void finish() {
    if (!pending.empty()) {
      flush();
    }
  }

  /// The first line with an error; without one, the last line.
  StringRef message() const { return kept; }

private:
  void flush() {
    if (!keptIsError && !StringRef(pending).trim().empty()) {
      keptIsError = StringRef(pending).contains("error: ");
      kept = pending;
    }
    std::string line = prefix + pending + "\n";
    pending.clear();
    for (StringRef rest = line; !rest.empty();) {
      ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        return;
      }
      rest = rest.drop_front(written);
    }
  }

  std::string prefix, pending, kept;
  bool keptIsError = false;
};

/// A rank's process.
struct RankProcess {
  pid_t pid = -1;
  int errors = -1; ///< the end of its stderr that is read here; -1: closed
  bool running = false;
  bool killed = false; ///< by this launcher
  int status = 0;      ///< as waitpid gives it, once it ended
  RankOutput output;
};

/// Why a rank ended. The order is that of precedence: a greater one is nearer
/// to the cause.
enum class EndKind {
  Good,
  Killed,
  Interrupted,
  LostRank,
  LateRank,
  Failed,
  Crashed
};

class Launcher {
public:
  Launcher(const LaunchOptions &options, DiagnosticEngine &diag)
      : options(options), diag(diag), ranks(options.ranks) {}
  ~Launcher();

  int run(MasterSocket &socket);

private:
  bool takeSignals();
  bool start(int64_t rank, const MasterSocket &socket);
  [[noreturn]] void becomeRank(int64_t rank, int masterSocket, int errors,
                               char **arguments, char **environment);
  std::vector<std::string> environmentOf(int64_t rank,
                                         const MasterSocket &socket) const;
  void watch();
  void readSignals();
  void readErrors(RankProcess &rank);
  void reap();
  void signalAll(int signal);
  EndKind kindOf(const RankProcess &rank) const;
  int report();

  const LaunchOptions &options;
  DiagnosticEngine &diag;
  std::vector<RankProcess> ranks;
  pid_t self = getpid();
  sigset_t taken = {}, before = {}; ///< signal masks
  struct sigaction pipeBefore = {};
  int signals = -1;   ///< signalfd
  int interrupt = 0;  ///< the first signal that asked to end; 0: none
  int64_t first = -1; ///< the rank whose end is the cause of the others'
  std::optional<Clock::time_point> killAt;
};
} // namespace

//===----------------------------------------------------------------------===//
// Starting
//===----------------------------------------------------------------------===//

/// From here on signals are read from a descriptor. A SIGHUP that is ignored,
/// as nohup has it, stays ignored.
bool Launcher::takeSignals() {
  sigemptyset(&taken);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM}) {
    sigaddset(&taken, signal);
  }
  struct sigaction action = {};
  if (sigaction(SIGHUP, nullptr, &action) == 0 &&
      action.sa_handler != SIG_IGN) {
    sigaddset(&taken, SIGHUP);
  }
  std::signal(SIGCHLD, SIG_DFL);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipeBefore);
  sigprocmask(SIG_BLOCK, &taken, &before);
  signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  return signals >= 0 || diag.error() << "cannot watch signals: "
                                      << std::strerror(errno);
}

Launcher::~Launcher() {
  signalAll(SIGKILL);
  for (RankProcess &rank : ranks) {
    while (rank.running && waitpid(rank.pid, &rank.status, 0) < 0 &&
           errno == EINTR) {
    }
    if (rank.errors >= 0) {
      close(rank.errors);
    }
  }
  if (signals >= 0) {
    close(signals);
    sigaction(SIGPIPE, &pipeBefore, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
  }
}

std::vector<std::string>
Launcher::environmentOf(int64_t rank, const MasterSocket &socket) const {
  std::vector<std::pair<std::string, std::string>> ours = {
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(options.ranks)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(socket.port())},
      {"OMP_NUM_THREADS",
       std::to_string(threadsForRank(options.threadsPerRank, options.ranks))},
      {"HP_MASTER_SOCKET",
       rank == 0 ? std::to_string(socket.descriptor()) : std::string("-1")},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  std::vector<std::string> all;
  for (char **entry = environ; *entry; ++entry) {
    StringRef name = StringRef(*entry).split('=').first;
    if (llvm::none_of(ours, [&](auto &pair) { return pair.first == name; })) {
      all.push_back(*entry);
    }
  }
  for (const auto &[name, value] : ours) {
    all.push_back(name + "=" + value);
  }
  return all;
}

/// Pointers into `strings`, as exec takes them.
static std::vector<char *> pointers(std::vector<std::string> &strings) {
  std::vector<char *> all;
  for (std::string &text : strings) {
    all.push_back(text.data());
  }
  all.push_back(nullptr);
  return all;
}

/// The new process, up to exec.
void Launcher::becomeRank(int64_t rank, int masterSocket, int errors,
                          char **arguments, char **environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != self) {
    _exit(1); // the launcher was gone before it could be watched
  }
  int nowhere = open("/dev/null", O_RDWR);
  dup2(nowhere, STDIN_FILENO);
  if (rank == 0) {
    fcntl(masterSocket, F_SETFD, 0);
  } else {
    dup2(nowhere, STDOUT_FILENO);
  }
  dup2(errors, STDERR_FILENO);
  if (nowhere > STDERR_FILENO) {
    close(nowhere);
  }
  sigaction(SIGPIPE, &pipeBefore, nullptr);
  // A shell starts what is in the background with SIGINT ignored; what is
  // handed on must arrive, also before the rank takes it.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  execve("/proc/self/exe", arguments, environment);
  static const char message[] = "error: cannot run this program again\n";
  [[maybe_unused]] ssize_t written =
      write(STDERR_FILENO, message, sizeof(message) - 1);
  _exit(127);
}

bool Launcher::start(int64_t number, const MasterSocket &socket) {
  RankProcess &rank = ranks[number];
  rank.output.setRank(number);
  std::vector<std::string> argumentTexts = options.arguments;
  std::vector<std::string> environmentTexts = environmentOf(number, socket);
  std::vector<char *> arguments = pointers(argumentTexts);
  std::vector<char *> environment = pointers(environmentTexts);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return diag.error() << "cannot start rank " << number << ": "
                        << std::strerror(errno);
  }
  rank.errors = ends[0];
  fcntl(rank.errors, F_SETFL, O_NONBLOCK);
  pid_t pid = fork();
  if (pid == 0) {
    becomeRank(number, socket.descriptor(), ends[1], arguments.data(),
               environment.data());
  }
  int failure = errno;
  close(ends[1]);
  if (pid < 0) {
    return diag.error() << "cannot start rank " << number << ": "
                        << std::strerror(failure);
  }
  setpgid(pid, pid); // whoever of the two comes first
  rank.pid = pid;
  rank.running = true;
  return true;
}

//===----------------------------------------------------------------------===//
// Watching
//===----------------------------------------------------------------------===//

void Launcher::signalAll(int signal) {
  for (RankProcess &rank : ranks) {
    if (rank.running) {
      // The group is there once either process has made it.
      if (kill(-rank.pid, signal) != 0) {
        kill(rank.pid, signal);
      }
      rank.killed |= signal == SIGKILL;
    }
  }
}

void Launcher::readSignals() {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof(info)) == ssize_t(sizeof(info))) {
    if (info.ssi_signo != SIGCHLD) {
      interrupt = interrupt ? interrupt : int(info.ssi_signo);
      signalAll(int(info.ssi_signo));
    }
  }
}

void Launcher::readErrors(RankProcess &rank) {
  std::array<char, 16384> buffer;
  while (rank.errors >= 0) {
    ssize_t size = read(rank.errors, buffer.data(), buffer.size());
    if (size > 0) {
      rank.output.add(StringRef(buffer.data(), size));
      continue;
    }
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size == 0) {
      close(rank.errors);
      rank.errors = -1;
    }
    return;
  }
}

EndKind Launcher::kindOf(const RankProcess &rank) const {
  if (WIFSIGNALED(rank.status)) {
    int signal = WTERMSIG(rank.status);
    if (signal == SIGKILL && rank.killed) {
      return EndKind::Killed;
    }
    return interrupt && signal == interrupt ? EndKind::Interrupted
                                            : EndKind::Crashed;
  }
  int code = WEXITSTATUS(rank.status);
  if (code == 0) {
    return EndKind::Good;
  }
  if (interrupt && code == 128 + interrupt) {
    return EndKind::Interrupted;
  }
  return code == lostRankStatus   ? EndKind::LostRank
         : code == lateRankStatus ? EndKind::LateRank
                                  : EndKind::Failed;
}

/// Takes the ranks that ended. The first of them with the strongest reason is
/// the cause: ranks that saw a connection break may well be reaped before the
/// one that broke it.
void Launcher::reap() {
  for (size_t number = 0; number < ranks.size(); ++number) {
    RankProcess &rank = ranks[number];
    if (!rank.running || waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) {
      continue;
    }
    rank.running = false;
    readErrors(rank);
    // Nothing that the rank started stays behind, and none of it can hold its
    // stderr open.
    kill(-rank.pid, SIGKILL);
    rank.output.finish();
    EndKind kind = kindOf(rank);
    if (kind == EndKind::Good || kind == EndKind::Killed) {
      continue;
    }
    if (first < 0 || kind > kindOf(ranks[first])) {
      first = int64_t(number);
    }
    // One that was interrupted by exit has said good-bye to the others.
    if (!killAt && (kind != EndKind::Interrupted || WIFSIGNALED(rank.status))) {
      killAt = Clock::now() + grace;
    }
  }
}

void Launcher::watch() {
  auto anyRuns = [&] {
    return llvm::any_of(ranks, [](auto &rank) { return rank.running; });
  };
  while (anyRuns()) {
    std::vector<pollfd> watched = {{signals, POLLIN, 0}};
    std::vector<RankProcess *> writers;
    for (RankProcess &rank : ranks) {
      if (rank.errors >= 0) {
        watched.push_back({rank.errors, POLLIN, 0});
        writers.push_back(&rank);
      }
    }
    int milliseconds = -1;
    if (killAt) {
      auto left =
          std::chrono::ceil<std::chrono::milliseconds>(*killAt - Clock::now());
      milliseconds = int(std::max<int64_t>(0, left.count()));
    }
    poll(watched.data(), watched.size(), milliseconds);
    for (size_t i = 0; i < writers.size(); ++i) {
      if (watched[i + 1].revents != 0) {
        readErrors(*writers[i]);
      }
    }
    readSignals();
    reap();
    if (killAt && Clock::now() >= *killAt) {
      signalAll(SIGKILL);
      killAt = Clock::now() + grace; // again, for what could not be signalled
    }
  }
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

int Launcher::report() {
  EndKind kind = first < 0 ? EndKind::Good : kindOf(ranks[first]);
  if (interrupt && kind != EndKind::Good && kind < EndKind::Failed) {
    return 128 + interrupt;
  }
  if (kind == EndKind::Good) {
    return 0;
  }
  const RankProcess &rank = ranks[first];
  auto error = diag.error();
  error << "rank " << first << " of " << options.ranks << " ";
  int code = 0;
  if (WIFSIGNALED(rank.status)) {
    int signal = WTERMSIG(rank.status);
    code = 128 + signal;
    error << "was killed by signal " << signal << " (" << strsignal(signal)
          << ")";
  } else {
    code = WEXITSTATUS(rank.status);
    error << "failed with exit status " << code;
  }
  if (options.ranks > 1) {
    error << ", and the other ranks were ended";
  }
  if (!rank.output.message().empty()) {
    error.note({}, "it said: " + rank.output.message());
  }
  for (size_t other = 0; other < ranks.size(); ++other) {
    if (kind == EndKind::LateRank && kindOf(ranks[other]) == EndKind::Killed) {
      error.note({}, "rank " + llvm::Twine(other) + " did not end by itself");
    }
  }
  return code;
}

int Launcher::run(MasterSocket &socket) {
  if (!takeSignals()) {
    return 1;
  }
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    if (!start(rank, socket)) {
      return 1;
    }
  }
  socket.close(); // rank 0 has it
  watch();
  return report();
}

int hp::launch(const LaunchOptions &options, MasterSocket &socket,
               DiagnosticEngine &diag) {
  return Launcher(options, diag).run(socket);
}
