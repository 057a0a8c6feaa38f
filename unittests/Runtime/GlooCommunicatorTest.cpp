//===- GlooCommunicatorTest.cpp - Ranks in processes beside lockstep ------===//
//
// Each test forks one process for each rank. The same program of primitives
// runs over Gloo there and in lockstep here, and what each rank has in the end
// is compared. The numbers are small integers, so that sums are exact in any
// order, but where a test says otherwise.
//
//===----------------------------------------------------------------------===//

#include "hp/Runtime/ProcessCommunicator.h"
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace hp;
using Tensors = Communicator::Tensors;

namespace {

using Clock = std::chrono::steady_clock;

/// Runs on each rank: gives what it found, as text.
using RankProgram = std::function<std::string(const ProcessOptions &)>;

/// What the processes of a launch found, and how they ended.
struct Outcome {
  std::vector<std::string> texts;
  std::vector<int> statuses;
};

void writeAll(int fd, llvm::StringRef text) {
  while (!text.empty()) {
    ssize_t size = write(fd, text.data(), text.size());
    if (size <= 0) {
      _exit(3);
    }
    text = text.drop_front(size);
  }
}

/// Forks `count` ranks and waits for them, 60 s at most.
Outcome runRanks(int64_t count, const RankProgram &program,
                 std::chrono::seconds initTimeout = std::chrono::seconds(30),
                 std::chrono::seconds trainTimeout = std::chrono::seconds(30)) {
  at::set_num_threads(1);
  DiagnosticEngine diag;
  MasterSocket socket;
  EXPECT_TRUE(socket.open(diag));
  std::vector<pid_t> processes;
  std::vector<pollfd> pipes;
  for (int64_t rank = 0; rank < count; ++rank) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_t process = fork();
    if (process == 0) {
      ProcessOptions options;
      options.place.rank = options.place.localRank = rank;
      options.place.worldSize = options.place.localWorldSize = count;
      options.place.masterPort = socket.port();
      if (rank == 0) {
        options.place.masterSocket = socket.descriptor();
      } else {
        socket.close();
      }
      options.initTimeout = initTimeout;
      options.trainTimeout = trainTimeout;
      std::string text;
      try {
        text = program(options);
      } catch (const std::exception &failure) {
        text = std::string("threw: ") +
               llvm::StringRef(failure.what()).split('\n').first.str();
      }
      writeAll(ends[1], text);
      _exit(0);
    }
    close(ends[1]);
    processes.push_back(process);
    pipes.push_back({ends[0], POLLIN, 0});
  }
  socket.close();

  Outcome outcome;
  outcome.texts.resize(count);
  bool late = false;
  Clock::time_point limit = Clock::now() + std::chrono::seconds(60);
  for (int64_t open = count; open > 0;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - Clock::now());
    if (left.count() <= 0 || poll(pipes.data(), count, left.count()) <= 0) {
      ADD_FAILURE() << "the ranks did not end";
      late = true;
      break;
    }
    for (int64_t rank = 0; rank < count; ++rank) {
      std::array<char, 65536> buffer;
      if (pipes[rank].fd < 0 || pipes[rank].revents == 0) {
        continue;
      }
      ssize_t size = read(pipes[rank].fd, buffer.data(), buffer.size());
      if (size > 0) {
        outcome.texts[rank].append(buffer.data(), size);
        continue;
      }
      close(pipes[rank].fd);
      pipes[rank].fd = -1;
      --open;
    }
  }
  for (pid_t process : processes) {
    int status = 0;
    if (late) {
      kill(process, SIGKILL);
    }
    waitpid(process, &status, 0);
    outcome.statuses.push_back(status);
  }
  return outcome;
}

/// The communicator of a rank; throws what went wrong.
std::unique_ptr<ProcessCommunicator> connect(const Mesh &mesh,
                                             const ProcessOptions &options) {
  std::string said;
  llvm::raw_string_ostream os(said);
  DiagnosticEngine diag(os);
  MessageFailure failure;
  auto comm = makeProcessCommunicator(mesh, options, failure, diag);
  if (!comm) {
    static const char *names[] = {"", "lost: ", "late: "};
    throw std::runtime_error(names[int(failure)] + said);
  }
  return comm;
}

//===----------------------------------------------------------------------===//
// Programs of primitives
//===----------------------------------------------------------------------===//

Mesh meshOf(llvm::ArrayRef<int64_t> sizes) {
  static const char *names[] = {"dp_replicate", "dp_shard", "cp", "tp"};
  Mesh mesh;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    EXPECT_TRUE(mesh.addAxis(names[axis], sizes[axis]));
  }
  return mesh;
}

/// Every tuple of different axes, in every order.
std::vector<AxisList> tuples(const Mesh &mesh) {
  std::vector<AxisList> all = {{}};
  for (size_t next = 0; next < all.size(); ++next) {
    for (AxisId axis = 0; axis < mesh.numAxes(); ++axis) {
      if (!llvm::is_contained(all[next], axis)) {
        AxisList longer = all[next];
        longer.push_back(axis);
        all.push_back(longer);
      }
    }
  }
  return all;
}

/// The results of each local rank, as text that tells shape, type and bytes.
struct Trace {
  explicit Trace(const Communicator &comm) : texts(comm.localRanks().size()) {}

  void add(const Tensors &tensors) {
    for (size_t i = 0; i < texts.size(); ++i) {
      llvm::raw_string_ostream os(texts[i]);
      at::Tensor tensor = tensors[i].contiguous();
      os << c10::toString(tensor.scalar_type());
      for (int64_t size : tensor.sizes()) {
        os << "," << size;
      }
      os << ":";
      os.write(static_cast<const char *>(tensor.data_ptr()), tensor.nbytes());
      os << ";";
    }
  }

  std::vector<std::string> texts;
};

/// Rank r has small numbers of its own, in the given shape.
Tensors numbers(const Communicator &comm, at::IntArrayRef shape,
                at::ScalarType dtype, int64_t salt) {
  Tensors tensors;
  for (int64_t rank : comm.localRanks()) {
    int64_t count = c10::multiply_integers(shape);
    at::Tensor flat =
        (at::arange(count, at::kLong) * 7 + rank * 13 + salt) % 11;
    tensors.push_back((flat - 5).view(shape).to(dtype));
  }
  return tensors;
}

/// Every primitive over `axes`.
void everyPrimitive(Communicator &comm, const AxisList &axes,
                    at::ScalarType dtype, Trace &trace) {
  int64_t ranks = comm.groupSize(axes);
  for (Reduction reduction : {Reduction::Sum, Reduction::Max}) {
    Tensors tensors = numbers(comm, {3, 5}, dtype, 1);
    comm.allReduce(tensors, axes, reduction);
    trace.add(tensors);
  }
  Tensors scalar = numbers(comm, {}, dtype, 2);
  comm.allReduce(scalar, axes);
  trace.add(scalar);
  trace.add(comm.allGather(numbers(comm, {2, 3}, dtype, 3), axes));
  trace.add(comm.allGather(numbers(comm, {}, dtype, 4), axes));
  trace.add(comm.allGather(numbers(comm, {0, 3}, dtype, 4), axes));
  trace.add(comm.reduceScatter(numbers(comm, {ranks, 2, 3}, dtype, 5), axes));
  trace.add(comm.reduceScatter(numbers(comm, {ranks}, dtype, 6), axes));
  trace.add(comm.allToAll(numbers(comm, {ranks, 4}, dtype, 7), axes));
  for (int64_t distance : {1, -1, 2}) {
    trace.add(comm.shift(numbers(comm, {4}, dtype, 8), axes, distance, true));
    trace.add(comm.shift(numbers(comm, {4}, dtype, 9), axes, distance, false));
  }
}

/// Messages over different groups and over the same one, all under way before
/// the first is waited for, which is the last that was started.
void messagesUnderWay(Communicator &comm, Trace &trace) {
  Tensors sums = numbers(comm, {1000}, at::kDouble, 1);
  Tensors more = numbers(comm, {7}, at::kLong, 2);
  Tensors gathered, rows, pieces;
  std::vector<std::unique_ptr<Pending>> messages;
  messages.push_back(comm.startAllReduce(sums, {0, 1}));
  messages.push_back(
      comm.startAllGather(numbers(comm, {500}, at::kFloat, 3), {1}, gathered));
  messages.push_back(comm.startReduceScatter(
      numbers(comm, {2, 300}, at::kDouble, 4), {0}, pieces));
  messages.push_back(comm.startAllReduce(more, {1}));
  messages.push_back(
      comm.startAllGather(numbers(comm, {0}, at::kFloat, 5), {0}, rows));
  trace.add(comm.shift(numbers(comm, {4}, at::kFloat, 6), {1}, 1, true));
  for (auto &message : llvm::reverse(messages)) {
    if (message) {
      message->wait();
    }
  }
  for (const Tensors &arrived : {sums, more, gathered, rows, pieces}) {
    trace.add(arrived);
  }
}

void compareWithLockstep(
    const Mesh &mesh,
    llvm::function_ref<void(Communicator &, Trace &)> program) {
  std::unique_ptr<Communicator> lockstep = makeLockstepCommunicator(mesh);
  Outcome outcome = runRanks(mesh.numRanks(), [&](const ProcessOptions &how) {
    auto comm = connect(mesh, how);
    Trace trace(*comm);
    program(*comm, trace);
    comm->barrier();
    return trace.texts[0];
  });
  Trace expected(*lockstep);
  program(*lockstep, expected);
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    EXPECT_EQ(outcome.statuses[rank], 0);
    EXPECT_FALSE(expected.texts[rank].empty());
    EXPECT_TRUE(outcome.texts[rank] == expected.texts[rank])
        << "rank " << rank << ": "
        << (llvm::StringRef(outcome.texts[rank]).starts_with("threw")
                ? outcome.texts[rank]
                : "other bytes");
  }
}

class GlooMeshTest : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(GlooMeshTest, everyPrimitiveOverEveryTupleOfAxesIsThatOfLockstep) {
  Mesh mesh = meshOf(GetParam());
  compareWithLockstep(mesh, [&](Communicator &comm, Trace &trace) {
    for (const AxisList &axes : tuples(mesh)) {
      everyPrimitive(comm, axes, at::kDouble, trace);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, GlooMeshTest,
    ::testing::Values(std::vector<int64_t>{}, std::vector<int64_t>{1},
                      std::vector<int64_t>{2}, std::vector<int64_t>{3},
                      std::vector<int64_t>{8}, std::vector<int64_t>{1, 2},
                      std::vector<int64_t>{2, 2}, std::vector<int64_t>{4, 2},
                      std::vector<int64_t>{2, 3}, std::vector<int64_t>{2, 1, 2},
                      std::vector<int64_t>{2, 2, 2}),
    [](const auto &info) {
      std::string name = "mesh";
      llvm::raw_string_ostream os(name);
      for (int64_t size : info.param) {
        os << "_" << size;
      }
      return name;
    });

class GlooTypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(GlooTypeTest, everyPrimitiveIsThatOfLockstep) {
  Mesh mesh = meshOf({2, 2});
  compareWithLockstep(mesh, [&](Communicator &comm, Trace &trace) {
    everyPrimitive(comm, {0}, GetParam(), trace);
    everyPrimitive(comm, {0, 1}, GetParam(), trace);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, GlooTypeTest,
                         ::testing::Values(at::kDouble, at::kFloat, at::kLong,
                                           at::kInt, at::kBFloat16),
                         [](const auto &info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(GlooTest, messagesThatAreUnderWayTogetherArriveAsInLockstep) {
  compareWithLockstep(meshOf({2, 2}), messagesUnderWay);
  compareWithLockstep(meshOf({2, 4}), messagesUnderWay);
}

TEST(GlooTest, aRankThatIsGoneIsSaidSoWhereTheMessageIsWaitedFor) {
  Mesh mesh = meshOf({2});
  Outcome outcome = runRanks(2, [&](const ProcessOptions &how) {
    auto comm = connect(mesh, how);
    Tensors tensors = {at::ones({1000})};
    comm->allReduce(tensors, {0});
    if (how.place.rank == 1) {
      kill(getpid(), SIGKILL);
    }
    std::unique_ptr<Pending> message = comm->startAllReduce(tensors, {0});
    try {
      message->wait();
    } catch (const c10::Error &failure) {
      return std::string(failure.what_without_backtrace());
    }
    return std::string("nothing happened");
  });
  EXPECT_EQ(outcome.texts[0],
            "rank 0: all_reduce over dp_replicate: another rank is gone");
}

TEST(GlooTest, booleansMoveAndAreNotReduced) {
  Mesh mesh = meshOf({2});
  Outcome outcome = runRanks(2, [&](const ProcessOptions &how) {
    auto comm = connect(mesh, how);
    Tensors mine = {at::full({2}, how.place.rank == 1, at::kBool)};
    Tensors all = comm->allGather(mine, {0});
    std::string text =
        all[0].equal(
            at::tensor({0, 0, 1, 1}, at::kLong).view({2, 2}).to(at::kBool))
            ? "moved; "
            : "wrong; ";
    try {
      comm->allReduce(mine, {0});
    } catch (const c10::Error &failure) {
      text += failure.what_without_backtrace();
    }
    return text + (comm->failure() == MessageFailure::None ? "" : "; failed");
  });
  for (const std::string &text : outcome.texts) {
    // The call was refused, no message failed.
    EXPECT_EQ(text, "moved; all_reduce: Gloo cannot reduce Bool; reduce in "
                    "float32");
  }
}

TEST(GlooTest, sumsOfAnyNumbersAreTheSameBytesOnAllRanksAndNearTheExactOnes) {
  Mesh mesh = meshOf({2, 4});
  constexpr int64_t count = 5003;
  auto mine = [](int64_t rank) {
    at::Tensor x = at::arange(count, at::kDouble) * 0.37 + double(rank) * 1.91;
    return at::sin(x).to(at::kFloat);
  };
  Outcome outcome = runRanks(8, [&](const ProcessOptions &how) {
    auto comm = connect(mesh, how);
    Tensors tensors = {mine(how.place.rank)};
    comm->allReduce(tensors, {0, 1});
    Trace trace(*comm);
    trace.add(tensors);
    return trace.texts[0];
  });
  at::Tensor exact = at::zeros({count}, at::kDouble);
  for (int64_t rank = 0; rank < 8; ++rank) {
    exact += mine(rank).to(at::kDouble);
    EXPECT_EQ(outcome.statuses[rank], 0);
    EXPECT_TRUE(outcome.texts[rank] == outcome.texts[0]) << "rank " << rank;
  }
  llvm::StringRef bytes = llvm::StringRef(outcome.texts[0]).split(':').second;
  ASSERT_EQ(bytes.size(), count * sizeof(float) + 1);
  at::Tensor sum = at::empty({count}, at::kFloat);
  std::memcpy(sum.data_ptr(), bytes.data(), sum.nbytes());
  EXPECT_LT((sum - exact).abs().max().item<double>(), 4e-6);
}

TEST(GlooTest, bytesAreCountedAsInLockstep) {
  Mesh mesh = meshOf({2, 2});
  auto program = [](Communicator &comm) {
    Trace trace(comm);
    everyPrimitive(comm, {0, 1}, at::kFloat, trace);
    everyPrimitive(comm, {1}, at::kLong, trace);
    std::string text;
    llvm::raw_string_ostream os(text);
    for (const auto &[key, count] : comm.traffic().counts) {
      os << name(key.primitive) << " " << key.axes.size() << ": " << count.calls
         << " " << count.bytes << "\n";
    }
    return text;
  };
  Outcome outcome = runRanks(4, [&](const ProcessOptions &how) {
    return program(*connect(mesh, how));
  });
  std::string expected = program(*makeLockstepCommunicator(mesh));
  // By hand: 15 + 15 + 1 elements of four bytes.
  EXPECT_NE(expected.find("all_reduce 2: 3 124\n"), std::string::npos);
  for (const std::string &text : outcome.texts) {
    EXPECT_EQ(text, expected);
  }
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

TEST(GlooTest, aRankThatIsGoneIsSaidSo) {
  Mesh mesh = meshOf({4});
  Clock::time_point start = Clock::now();
  Outcome outcome = runRanks(4, [&](const ProcessOptions &how) {
    auto comm = connect(mesh, how);
    Tensors tensors = {at::ones({1000})};
    comm->allReduce(tensors, {0});
    if (how.place.rank == 2) {
      kill(getpid(), SIGKILL);
    }
    try {
      comm->allReduce(tensors, {0});
    } catch (const c10::Error &failure) {
      return std::string(comm->failure() == MessageFailure::Lost ? "lost: "
                                                                 : "") +
             failure.what_without_backtrace();
    }
    return std::string("nothing happened");
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  for (int64_t rank : {0, 1, 3}) {
    EXPECT_EQ(outcome.texts[rank],
              "lost: rank " + std::to_string(rank) +
                  ": all_reduce over dp_replicate: another rank is gone");
  }
  EXPECT_TRUE(WIFSIGNALED(outcome.statuses[2]));
}

TEST(GlooTest, aRankThatDoesNotComeIsWaitedForNoLongerThanTheTimeout) {
  Mesh mesh = meshOf({2});
  for (const char *what : {"all_reduce", "send_receive"}) {
    Outcome outcome = runRanks(
        2,
        [&](const ProcessOptions &how) {
          auto comm = connect(mesh, how);
          Tensors tensors = {at::ones({4})};
          comm->allReduce(tensors, {0});
          if (how.place.rank == 1) {
            sleep(3);
            return std::string();
          }
          if (llvm::StringRef(what) == "all_reduce") {
            comm->allReduce(tensors, {0});
          } else {
            comm->shift(tensors, {0}, 1, true);
          }
          return std::string("nothing happened");
        },
        std::chrono::seconds(30), std::chrono::seconds(1));
    std::string expected =
        std::string("threw: rank 0: ") + what +
        " over dp_replicate: another rank did not come within 1 s "
        "(comm.train_timeout_seconds)";
    EXPECT_TRUE(llvm::StringRef(outcome.texts[0]).starts_with(expected))
        << outcome.texts[0];
  }
}

TEST(GlooTest, aRankThatIsMissingAtTheStartIsCounted) {
  Mesh mesh = meshOf({3});
  Outcome outcome = runRanks(
      3,
      [&](const ProcessOptions &how) {
        if (how.place.rank == 2) {
          sleep(3);
          return std::string();
        }
        connect(mesh, how);
        return std::string("nothing happened");
      },
      std::chrono::seconds(1));
  EXPECT_NE(outcome.texts[0].find(
                "late: error: rank 0: 2 of 3 ranks came to 127.0.0.1:"),
            std::string::npos)
      << outcome.texts[0];
  EXPECT_NE(outcome.texts[0].find("within 1 s (comm.init_timeout_seconds)"),
            std::string::npos);
}

TEST(GlooTest, ranksThatRunOtherPlansAreRefused) {
  Outcome outcome = runRanks(
      2,
      [&](const ProcessOptions &how) {
        ProcessOptions options = how;
        options.agreement = "plan " + std::to_string(how.place.rank);
        connect(meshOf({2}), options);
        return std::string("nothing happened");
      },
      std::chrono::seconds(1));
  EXPECT_TRUE(llvm::StringRef(outcome.texts[1])
                  .starts_with("threw: error: rank 1 was given another "
                               "configuration or plan than rank 0"))
      << outcome.texts[1];
  // Rank 0 waits for one that agrees.
  EXPECT_TRUE(llvm::StringRef(outcome.texts[0])
                  .starts_with("threw: late: error: rank 0: 1 of 2 ranks came"))
      << outcome.texts[0];
}

TEST(GlooTest, aMeshOfAnotherNumberOfRanksIsRefused) {
  std::string said;
  llvm::raw_string_ostream os(said);
  DiagnosticEngine diag(os);
  ProcessOptions options;
  options.place.worldSize = 4;
  MessageFailure failure;
  EXPECT_EQ(makeProcessCommunicator(meshOf({2}), options, failure, diag),
            nullptr);
  EXPECT_EQ(failure, MessageFailure::None);
  EXPECT_EQ(said, "error: the plan is of 2 ranks, but there are 4\n");
}

} // namespace
