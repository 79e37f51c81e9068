// load: records from a file or standard input, in batches.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "commands.h"
#include "print.h"
#include "record_format.h"
#include "store.h"

namespace ashlar::tools {
namespace {

constexpr size_t kMaxBatchBytes = 1 << 20;
// Of the log, a record, beyond its key and value: an upper bound.
constexpr size_t kRecordOverhead = 32;

// What of the input is in the store.
struct Progressed {
  uint64_t records = 0;
  uint64_t bytes = 0;  // keys and values
};

class Input {
 public:
  ~Input() {
    if (fd_ > 0) close(fd_);
  }
  absl::Status Open(const std::string& file) {
    name_ = file.empty() || file == "-" ? "standard input" : file;
    fd_ = name_ == file ? open(file.c_str(), O_RDONLY | O_CLOEXEC) : 0;
    if (fd_ < 0) return Failed("open");
    struct stat about;
    if (fstat(fd_, &about) == 0 && S_ISREG(about.st_mode)) {
      total_bytes_ = static_cast<uint64_t>(about.st_size);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<size_t> Read(char* to, size_t bytes) {
    while (true) {
      const ssize_t n = read(fd_, to, bytes);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EINTR) return Failed("read");
    }
  }
  // 0: unknown.
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  absl::Status Failed(const char* what) const {
    return absl::InternalError(std::string("cannot ") + what + " " + name_ + ": " +
                               strerror(errno));
  }

  int fd_ = -1;
  std::string name_;
  uint64_t total_bytes_ = 0;
};

class Loader {
 public:
  Loader(DB* db, const LoadCommand& command, Output* out)
      : db_(db), command_(command), out_(out), limits_(db->limits()) {
    if (command.durable || command.report_durable) {
      write_.durability = Durability::kDurable;
    } else {
      write_.durability = Durability::kBuffered;
    }
  }

  // Until the end of the input or the first error; what was read before an error of the input is
  // written.
  absl::Status Run(RecordReader* reader, const Input& input) {
    ProgressLine line("loaded");
    const size_t batch_bytes = std::min(limits_.batch_bytes / 2, kMaxBatchBytes);
    while (true) {
      const absl::StatusOr<bool> more = reader->Next();
      absl::Status bad = more.ok() ? absl::OkStatus() : more.status();
      if (bad.ok() && *more) bad = CheckLimits(*reader);
      if (!bad.ok() || !*more) {
        const absl::Status written = Commit();
        return bad.ok() ? written : bad;
      }
      const size_t bytes = reader->key().size() + reader->value().size() + kRecordOverhead;
      if (batch_.bytes() + bytes > batch_bytes || batch_.count() >= command_.batch_records) {
        if (absl::Status s = Commit(); !s.ok()) return s;
        line.Show(reader->bytes_read(), input.total_bytes());
      }
      batch_.Put(reader->key(), reader->value());
      batch_payload_ += reader->key().size() + reader->value().size();
    }
  }

  const Progressed& loaded() const { return loaded_; }

 private:
  // The store's own limits, below those of the format when the store is small.
  absl::Status CheckLimits(const RecordReader& reader) const {
    if (reader.value().size() <= limits_.value_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        reader.Place() + ": a value of " + Grouped(reader.value().size()) +
        " bytes, the limit of this store is " + Grouped(limits_.value_bytes));
  }

  absl::Status Commit() {
    if (batch_.count() == 0) return absl::OkStatus();
    if (absl::Status s = db_->Write(write_, batch_); !s.ok()) return s;
    loaded_.records += batch_.count();
    loaded_.bytes += batch_payload_;
    batch_.Clear();
    batch_payload_ = 0;
    if (!command_.report_durable) return absl::OkStatus();
    out_->Write("durable " + std::to_string(loaded_.records) + "\n");
    return out_->Flush();
  }

  DB* const db_;
  const LoadCommand& command_;
  Output* const out_;
  const DB::Limits limits_;
  WriteOptions write_;
  WriteBatch batch_;
  uint64_t batch_payload_ = 0;
  Progressed loaded_;
};

std::string Records(uint64_t records) {
  return Grouped(records) + (records == 1 ? " record" : " records");
}

// `synced`: whether what was loaded is known to be on the media.
int Report(const LoadCommand& command, const Progressed& loaded, absl::Status end, bool synced,
           Output* out) {
  const std::string records = Records(loaded.records);
  if (!end.ok()) {
    const std::string kept =
        "; " + records + " loaded before it" + (synced ? "" : ", not known to be durable");
    end = absl::Status(end.code(), std::string(Std(end.message())) + kept);
    (void)out->Flush();
    return Fail(end, command.json);
  }
  if (command.json) {
    out->Write(JsonLine({{"records", loaded.records}, {"bytes", loaded.bytes}}));
  } else {
    out->Write("loaded " + records + ", " + HumanBytes(loaded.bytes) + " of keys and values\n");
  }
  const absl::Status written = out->Flush();
  return written.ok() ? kExitOk : Fail(written, command.json);
}

}  // namespace

int RunLoad(const LoadCommand& command) {
  const auto format = RecordFormatFromName(command.format);
  if (!format) return Fail(absl::InvalidArgumentError("no such format"), command.json);
  if (command.batch_records == 0) {
    return Fail(absl::InvalidArgumentError("--batch-records must be at least 1"), command.json);
  }
  Input input;
  if (absl::Status s = input.Open(command.file); !s.ok()) return Fail(s, command.json);
  auto db = OpenStore(command.path, Access::kWrite);
  if (!db.ok()) return Fail(db.status(), command.json);

  Output out;
  Loader loader(db->get(), command, &out);
  RecordReader reader(*format, command.key_field,
                      [&input](char* to, size_t bytes) { return input.Read(to, bytes); });
  absl::Status end = loader.Run(&reader, input);
  // After an error too: the records that are counted stay.
  const absl::Status synced = (*db)->Sync();
  // Damage that a merge met on the way is no success, though what was loaded is there.
  if (end.ok() && synced.ok()) end = (*db)->health().cause;
  end = CloseStore(**db, end.ok() ? synced : end);
  return Report(command, loader.loaded(), end, synced.ok(), &out);
}

}  // namespace ashlar::tools
