//===- Launch.h - Ranks as processes ----------------------------*- C++ -*-===//
//
// A run of many ranks is one process for each. hp-run starts them itself on
// this machine (`--nproc N`), or each is started by others, with its place in
// the environment as torchrun and most launchers write it:
//
//   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT   needed (the latter two if
//                                             WORLD_SIZE is above 1)
//   LOCAL_RANK LOCAL_WORLD_SIZE               the place on this machine
//
// The launcher has no threads and no LibTorch: it starts the ranks, hands on
// what they write to stderr, and ends all of them when one fails.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_LAUNCH_H
#define HP_RUNTIME_LAUNCH_H

#include "hp/Support/Diagnostics.h"
#include <cstdint>
#include <optional>

namespace hp {

/// The place of this process among the ranks.
struct RankPlace {
  int64_t rank = 0;
  int64_t worldSize = 1;
  int64_t localRank = 0;
  int64_t localWorldSize = 1; ///< ranks on this machine
  /// Where the ranks meet: rank 0 serves there, unless `served`.
  std::string masterAddress = "127.0.0.1";
  uint16_t masterPort = 0;
  /// The listening socket of masterPort that rank 0 has from its launcher; -1:
  /// rank 0 opens one.
  int masterSocket = -1;
  /// The launcher serves (torchrun's agent).
  bool served = false;
};

/// Reads the place from the environment; `place` stays empty if RANK is not
/// set. False, with an error, if a variable is missing or makes no sense.
bool readRankPlace(std::optional<RankPlace> &place, DiagnosticEngine &diag);

/// The exit status of a rank that ended because another rank was gone, and of
/// one that waited too long for another. The launcher looks for another rank's
/// failure behind them.
constexpr int lostRankStatus = 75, lateRankStatus = 76;

/// The processors this process may use, at least 1.
int64_t availableProcessors();

/// Threads for each of `localRanks` ranks of a machine: what `asked` says if it
/// is not 0, else OMP_NUM_THREADS if that is set to a number, else an equal
/// share of the processors, at least 1.
int64_t threadsForRank(int64_t asked, int64_t localRanks);

struct LaunchOptions {
  /// The arguments of every rank, the program's name first. The program is
  /// this one.
  std::vector<std::string> arguments;
  int64_t ranks = 1;
  int64_t threadsPerRank = 0; ///< as threadsForRank takes it
};

/// The most ranks that `launch` starts.
constexpr int64_t maxLocalRanks = 1024;

/// Opens the socket where the ranks of this machine meet: on 127.0.0.1, at
/// MASTER_PORT if that is set, else at a free port.
class MasterSocket {
public:
  ~MasterSocket();
  /// False, with an error, if the port is in use or the variable no port.
  bool open(DiagnosticEngine &diag);
  int descriptor() const { return fd; }
  uint16_t port() const { return number; }
  void close();

private:
  int fd = -1;
  uint16_t number = 0;
};

/// Runs `options.ranks` ranks and gives the exit code: 0 if all gave 0; the
/// code of the rank that failed first, 128 + n if signal n killed it; 128 + n
/// if signal n (SIGINT, SIGTERM, SIGHUP) asked the launcher to end and the
/// ranks did. A signal is handed on to all ranks, each time it comes. A second
/// after a rank failed, those that are left are killed. No rank outlives this
/// call, or this process if that is killed.
///
/// Rank 0 has this process's stdout; the other ranks' stdout goes nowhere. All
/// lines of stderr appear on this process's stderr as `[rank 3] ...`.
int launch(const LaunchOptions &options, MasterSocket &socket,
           DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_LAUNCH_H
