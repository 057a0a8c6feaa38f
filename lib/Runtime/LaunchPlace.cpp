//===- LaunchPlace.cpp - The place of a rank, from the environment --------===//

#include "hp/Runtime/Launch.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace hp;
using llvm::StringRef;

/// The value of a variable; empty if it is not set.
static StringRef variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? StringRef(value) : StringRef();
}

namespace {
/// Reads numbers from the environment, and reports what is wrong with them.
class VariableReader {
public:
  explicit VariableReader(DiagnosticEngine &diag) : diag(diag) {}

  /// The number in `name`, from `least` to `most`. Without `otherwise` it must
  /// be set.
  int64_t number(const char *name, int64_t least, int64_t most,
                 std::optional<int64_t> otherwise = std::nullopt) {
    StringRef text = variable(name);
    int64_t value = 0;
    if (text.empty() && otherwise) {
      return *otherwise;
    }
    if (text.empty()) {
      ok = diag.error() << "RANK is set, but " << name
                        << " is not; a rank needs RANK, WORLD_SIZE, "
                           "MASTER_ADDR and MASTER_PORT";
    } else if (text.getAsInteger(10, value) || value < least || value > most) {
      ok = diag.error() << name << " is '" << text.take_front(40)
                        << "', which is no number from " << least << " to "
                        << most;
    }
    return value;
  }

  bool ok = true;

private:
  DiagnosticEngine &diag;
};
} // namespace

bool hp::readRankPlace(std::optional<RankPlace> &place,
                       DiagnosticEngine &diag) {
  if (variable("RANK").empty()) {
    return true;
  }
  VariableReader reader(diag);
  constexpr int64_t most = INT32_MAX;
  RankPlace read;
  read.worldSize = reader.number("WORLD_SIZE", 1, most);
  if (!reader.ok) {
    return false;
  }
  read.rank = reader.number("RANK", 0, read.worldSize - 1);
  read.localWorldSize =
      reader.number("LOCAL_WORLD_SIZE", 1, read.worldSize, /*otherwise=*/1);
  read.localRank = reader.number("LOCAL_RANK", 0, most, /*otherwise=*/0);
  if (read.worldSize > 1) {
    read.masterPort = uint16_t(reader.number("MASTER_PORT", 1, UINT16_MAX));
    read.masterAddress = variable("MASTER_ADDR").str();
    if (read.masterAddress.empty()) {
      return diag.error() << "RANK is set, but MASTER_ADDR is not; a rank "
                             "needs RANK, WORLD_SIZE, MASTER_ADDR and "
                             "MASTER_PORT";
    }
  } else if (!variable("MASTER_PORT").empty()) {
    read.masterPort = uint16_t(reader.number("MASTER_PORT", 1, UINT16_MAX));
  }
  read.masterSocket = int(reader.number("HP_MASTER_SOCKET", -1, most, -1));
  read.served = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (reader.ok) {
    place = read;
  }
  return reader.ok;
}

int64_t hp::availableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

int64_t hp::threadsForRank(int64_t asked, int64_t localRanks) {
  int64_t given = 0;
  if (asked > 0) {
    return asked;
  }
  if (!variable("OMP_NUM_THREADS").getAsInteger(10, given) && given > 0) {
    return given;
  }
  return std::max<int64_t>(1, availableProcessors() / localRanks);
}

//===----------------------------------------------------------------------===//
// MasterSocket
//===----------------------------------------------------------------------===//

MasterSocket::~MasterSocket() { close(); }

void MasterSocket::close() {
  if (fd >= 0) {
    ::close(fd);
    fd = -1;
  }
}

/// Makes the descriptors 0 to 2 exist, so that none opened later is one of
/// them, which a rank's stdin, stdout and stderr would replace.
static void openStandardDescriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
  ::close(fd);
}

bool MasterSocket::open(DiagnosticEngine &diag) {
  openStandardDescriptors();
  VariableReader reader(diag);
  int64_t wanted = reader.number("MASTER_PORT", 1, UINT16_MAX, 0);
  if (!reader.ok) {
    return false;
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(uint16_t(wanted));
  auto *generic = reinterpret_cast<sockaddr *>(&address);
  socklen_t size = sizeof(address);
  const int yes = 1;
  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 ||
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(fd, generic, size) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, generic, &size) != 0) {
    int failure = errno;
    close();
    if (wanted != 0 && failure == EADDRINUSE) {
      return diag.error() << "port " << wanted
                          << " of MASTER_PORT is in use on 127.0.0.1; unset "
                             "MASTER_PORT to take a free one";
    }
    return diag.error() << "cannot open a port for the ranks on 127.0.0.1: "
                        << std::strerror(failure);
  }
  number = ntohs(address.sin_port);
  return true;
}
