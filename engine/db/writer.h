// One caller in the queue of writers. Private to engine/db.
#pragma once

#include "engine/db/db_impl.h"

namespace ashlar {

struct DBImpl::Writer {
  enum class Kind {
    kWrite,   // a batch
    kSync,    // nothing but durability
    kSeal,    // seal the memtable, if it holds anything
    kTimers,  // the log's: submit, flush, mark what has waited long enough
  };
  explicit Writer(Kind k) : kind(k) {}

  const Kind kind;
  const WriteBatch* batch = nullptr;
  bool durable = false;
  bool own = false;     // the store's: taken while it closes
  uint64_t now_ns = 0;  // kTimers
  bool done = false;
  absl::Status status;
  CondVar turn;
};

}  // namespace ashlar
