// Replays chains of records: the log's segments, or a manifest in its copies. Tells the torn end of
// a chain from damage inside it: a record that can't be read ends the chain, unless a later one
// says that it had been durable. Reads only; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/types.h"
#include "engine/format/log_format.h"
#include "engine/space/extent_io.h"

namespace ashlar {

// One stream, once or in several equal copies; a record is read from the first copy in which it
// verifies.
struct RecordStream {
  std::string name;  // for messages: "log segment 3.1", "manifest"
  WriteId id;
  std::vector<std::vector<ExtentId>> copies;
};

struct ReplayReport {
  uint64_t records = 0;
  LogPosition end;              // behind the last record
  uint64_t first_checksum = 0;  // of the very first record
  // Copies in which a record that another copy has does not verify: copy number and place. The last
  // record is told apart: a crash between the copies leaves it so.
  struct CopyDamage {
    size_t copy;
    std::string where;
    bool last_record;
  };
  std::vector<CopyDamage> copy_damage;
};

// Called with each whole payload, in order.
using PayloadSink = std::function<absl::Status(SequenceNumber first_sequence, std::string_view)>;
// Called with what is damaged; null makes it the end, with DataLoss.
using ReplayDamage = std::function<void(const std::string& what, const absl::Status& why)>;

// `streams` in ascending order of id. With `damage` what can't be read is reported and passed over:
// later records are then delivered though earlier ones are lost.
absl::Status ReplayRecords(ExtentIo* io, const StoreId& store,
                           const std::vector<RecordStream>& streams, const PayloadSink& sink,
                           const ReplayDamage& damage, ReplayReport* report);

}  // namespace ashlar
