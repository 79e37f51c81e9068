// Writes to the store at argv[1] until it is killed. One line on standard output for each thing
// that the other side may rely on: "open", and "ack THREAD BATCH" after each durable write.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ashlar/db.h"
#include "tests/kill/workload.h"

namespace {

void Say(const std::string& line) {
  // One write: whole or not at all in the pipe, and there when the next line of this program runs.
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(3);
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "writer: %s\n", status.ToString().c_str());
  _exit(2);
}

void WriteForEver(ashlar::DB* db, int thread, uint64_t batch) {
  using namespace kill_workload;
  for (;;) {
    ++batch;
    ashlar::WriteBatch changes;
    changes.Put(HeadKey(thread), std::to_string(batch));
    for (int m = 0; m < kMembers; ++m) {
      changes.Put(SlotKey(thread, batch % kSlots, m), ValueOf(thread, batch, m));
    }
    ashlar::WriteOptions options;
    const bool durable = IsDurable(thread, batch);
    options.durability = durable ? ashlar::Durability::kDurable : ashlar::Durability::kBuffered;
    if (const absl::Status s = db->Write(options, changes); !s.ok()) Die(s);
    if (durable) Say("ack " + std::to_string(thread) + " " + std::to_string(batch) + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  ashlar::Options options;
  options.memory_bytes = 4 << 20;  // small: flushes and merges are going on when the end comes
  auto db = ashlar::DB::Open(options, argv[1]);
  if (!db.ok()) Die(db.status());
  std::vector<std::thread> threads;
  uint64_t heads[kill_workload::kThreads] = {};
  for (int t = 0; t < kill_workload::kThreads; ++t) {
    ashlar::Value head;
    const absl::Status s = (*db)->Get(ashlar::ReadOptions{}, kill_workload::HeadKey(t), &head);
    if (s.ok()) {
      heads[t] = std::strtoull(std::string(head.view()).c_str(), nullptr, 10);
    } else if (!absl::IsNotFound(s)) {
      Die(s);
    }
  }
  Say("open\n");
  for (int t = 0; t < kill_workload::kThreads; ++t) {
    threads.emplace_back(WriteForEver, db->get(), t, heads[t]);
  }
  for (std::thread& t : threads) t.join();
}
