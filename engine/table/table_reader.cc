#include "engine/table/table_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/table/page_stream.h"

namespace ashlar {

std::string TableName(WriteId id) { return absl::StrCat("table ", id.epoch, ".", id.counter); }

std::string TableReader::Where(const TableMeta& meta, uint32_t page) const {
  const uint32_t per_extent = io_->extent_bytes() / kPageBytes;
  const uint32_t index = page / per_extent - meta.dropped_extents;
  if (page / per_extent < meta.dropped_extents || index >= meta.extents.size()) {
    return absl::StrCat("page ", page, ", which it does not own");
  }
  return io_->Where(meta.extents[index], page % per_extent);
}

absl::Status TableReader::Damaged(const TableMeta& meta, uint32_t page,
                                  absl::string_view why) const {
  return absl::DataLossError(absl::StrCat(TableName(meta.id), ": ", Where(meta, page), ": ", why));
}

absl::Status TableReader::ReadPages(io::Queue& queue, const TableMeta& meta, uint32_t first,
                                    uint32_t count, std::byte* to) const {
  const uint64_t per_extent = io_->extent_bytes() / kPageBytes;
  const uint64_t dropped = meta.dropped_extents * per_extent;
  if (count == 0 || first < dropped || first + count - dropped > meta.extents.size() * per_extent) {
    return Damaged(meta, first, "an index that points outside the table");
  }
  const absl::Status s = io_->Read(queue, meta.extents, (first - dropped) * kPageBytes,
                                   {to, size_t{count} * kPageBytes});
  // What can't be read for good is damage, and has a place.
  return absl::IsInternal(s) ? Damaged(meta, first, s.message()) : s;
}

absl::Status TableReader::VerifyAt(const TableMeta& meta, uint32_t page, PageKind kind,
                                   const std::byte* bytes, PageHeader* header) const {
  const uint32_t per_extent = io_->extent_bytes() / kPageBytes;
  const ExtentId extent = meta.extents[page / per_extent - meta.dropped_extents];
  const absl::Status s =
      VerifyPage(bytes, kind, meta.id, store_, extent, page % per_extent, header);
  return s.ok() ? s : Damaged(meta, page, s.message());
}

absl::StatusOr<std::string> TableReader::ReadStream(const TableMeta& meta, PageKind kind,
                                                    uint32_t first, uint32_t count) const {
  ExtentIo::Lease lease = io_->Acquire();
  const uint32_t chunk = lease.buffer_bytes() / kPageBytes;
  std::string bytes;
  for (uint32_t at = first; at < first + count;) {
    const uint32_t n = std::min(chunk, first + count - at);
    RETURN_IF_ERROR(ReadPages(lease.queue(), meta, at, n, lease.buffer()));
    for (uint32_t i = 0; i < n; ++i, ++at) {
      const std::byte* const page = lease.buffer() + size_t{i} * kPageBytes;
      PageHeader header;
      RETURN_IF_ERROR(VerifyAt(meta, at, kind, page, &header));
      bytes.append(PagePayload(page).substr(0, header.used - kPageHeaderBytes));
    }
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<const TopIndex>> TableReader::Top(const TableMeta& meta) const {
  if (auto cached = cache_->FindTop(meta.id)) return cached;
  const uint32_t footer_page = meta.pages - 1, first = meta.pages - meta.tail_pages;
  auto top = std::make_shared<TopIndex>();
  {
    ExtentIo::Lease lease = io_->Acquire();
    RETURN_IF_ERROR(ReadPages(lease.queue(), meta, footer_page, 1, lease.buffer()));
    PageHeader header;
    RETURN_IF_ERROR(VerifyAt(meta, footer_page, PageKind::kFooter, lease.buffer(), &header));
    if (PageChecksum(lease.buffer()) != meta.footer_checksum) {
      return Damaged(meta, footer_page, "not the footer that the manifest names");
    }
    const std::string_view payload = PagePayload(lease.buffer());
    if (absl::Status s = DecodeFooter(payload.substr(0, header.used - kPageHeaderBytes), meta.pages,
                                      &top->footer);
        !s.ok()) {
      return Damaged(meta, footer_page, s.message());
    }
  }
  if (top->footer.top_pages + 1 != meta.tail_pages) {
    return Damaged(meta, footer_page, "a footer that disagrees with the manifest");
  }
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadStream(meta, PageKind::kTop, first, top->footer.top_pages));
  if (absl::Status s = DecodeTop(bytes, top->footer.data_pages, first, &top->entries); !s.ok()) {
    return Damaged(meta, first, s.message());
  }
  cache_->Insert(meta.id, std::shared_ptr<const TopIndex>(top));
  return top;
}

absl::StatusOr<std::shared_ptr<const Partition>> TableReader::Part(const TableMeta& meta,
                                                                   const TopIndex& top,
                                                                   uint32_t index) const {
  if (auto cached = cache_->FindPartition(meta.id, index)) return cached;
  const TopEntry& entry = top.entries[index];
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadStream(meta, PageKind::kIndex, entry.first_page, entry.pages));
  auto partition = std::make_shared<Partition>();
  if (absl::Status s = DecodePartition(std::move(bytes), top.footer.data_pages, partition.get());
      !s.ok()) {
    return Damaged(meta, entry.first_page, s.message());
  }
  cache_->Insert(meta.id, index, partition);
  return std::shared_ptr<const Partition>(partition);
}

namespace {

// The fence of the first page that can hold `key`: the last one not greater, moved to the front
// over pages that begin with further versions of the same key.
size_t FenceFor(const Partition& partition, std::string_view key) {
  const auto& fences = partition.fences;
  const auto after = std::upper_bound(fences.begin(), fences.end(), key,
                                      [](std::string_view k, const Fence& f) { return k < f.key; });
  size_t i = after == fences.begin() ? 0 : static_cast<size_t>(after - fences.begin()) - 1;
  while (i > 0 && fences[i].continues && fences[i].key == key) --i;
  return i;
}

}  // namespace

absl::StatusOr<TableReader::Found> TableReader::Get(const TableMeta& meta, std::string_view key,
                                                    SequenceNumber sequence,
                                                    std::string* value) const {
  if (key < meta.smallest || key > meta.largest) return Found::kNo;
  ASSIGN_OR_RETURN(const auto top, Top(meta));
  ASSIGN_OR_RETURN(const auto partition,
                   Part(meta, *top, static_cast<uint32_t>(top->PartitionFor(key))));
  if (!FilterMayContain(partition->filter, key)) return Found::kNo;

  const Fence& fence = partition->fences[FenceFor(*partition, key)];
  const uint32_t end = top->footer.data_pages;
  ExtentIo::Lease lease = io_->Acquire();
  PageStream pages(*this, meta, lease.buffer(), lease.buffer_bytes() / kPageBytes, &lease);
  const std::byte* bytes;
  PageHeader header;
  RETURN_IF_ERROR(pages.Page(fence.page, fence.RunOn(key), end, &bytes, &header));
  if (header.first_record == kNoRecordStarts) {
    return Damaged(meta, fence.page, "an index that points to a page without records");
  }
  uint32_t page = fence.page, offset = header.first_record;
  std::string scratch;
  for (;;) {
    bool found;
    RETURN_IF_ERROR(pages.NextStart(&page, &offset, 0, end, &found));
    if (!found) return Found::kNo;
    PageStream::Record record;
    RETURN_IF_ERROR(pages.ReadRecord(page, offset, end, false, &scratch, &record));
    const int c = record.key.compare(key);
    if (c > 0) return Found::kNo;
    if (c == 0 && record.head.sequence <= sequence) {
      if (record.head.kind == EntryKind::kDelete) return Found::kDeleted;
      if (record.end_page != page) {
        RETURN_IF_ERROR(pages.ReadRecord(page, offset, end, true, &scratch, &record));
      }
      value->assign(record.value);
      return Found::kValue;
    }
    page = record.end_page;
    offset = record.end_offset;
  }
}

// ---- iterator ----

class TableIterator : public InternalIterator {
  // A large value's memory is given back when the stream moves on.
  static constexpr size_t kScratchKept = 64u << 10;

 public:
  TableIterator(const TableReader& reader, std::shared_ptr<const TableMeta> meta, DamageSink damage)
      : reader_(reader),
        meta_(std::move(meta)),
        damage_(std::move(damage)),
        capacity_(std::min<uint32_t>(64, reader.io_->buffer_bytes() / kPageBytes)),
        buffer_(new std::byte[size_t{capacity_} * kPageBytes]),
        pages_(reader_, *meta_, buffer_.get(), capacity_, nullptr) {}

  void SeekToFirst() override { Seek(meta_->smallest); }

  void Seek(std::string_view target) override {
    valid_ = false;
    status_ = absl::OkStatus();
    ahead_ = 1;
    const std::string_view from = std::max(target, std::string_view(meta_->smallest));
    if (absl::Status s = Position(from); !s.ok()) {
      // Without the index a rescue reads the pages in order.
      if (!Passes(s) || !PositionWithoutIndex()) return;
    }
    do {
      Load();
    } while (valid_ && record_.key < from && (Advance(), true));
  }

  void Next() override {
    Advance();
    Load();
  }

  // Backwards damage is never passed over.
  void SeekToLast() override { SeekBackward(nullptr); }
  void SeekBefore(std::string_view target) override { SeekBackward(&target); }
  void Prev() override {
    valid_ = false;
    if (scratch_.capacity() > kScratchKept) std::string().swap(scratch_);
    status_ = StepBackward();
  }

  bool Valid() const override { return valid_; }
  std::string_view key() const override { return record_.key; }
  bool LoadValue() override {
    if (value_loaded_) return true;
    const absl::Status s = pages_.ReadRecord(page_, offset_, end_, true, &scratch_, &record_);
    value_loaded_ = s.ok();
    if (s.ok()) return true;
    valid_ = false;
    if (!Passes(s)) return false;
    ++page_;
    if (SkipDamage()) Load();
    return false;
  }
  std::string_view value() const override { return record_.value; }
  SequenceNumber sequence() const override { return record_.head.sequence; }
  EntryKind kind() const override { return record_.head.kind; }
  absl::Status status() const override { return status_; }

 private:
  absl::Status Position(std::string_view from) {
    ASSIGN_OR_RETURN(top_, reader_.Top(*meta_));
    end_ = top_->footer.data_pages;
    ASSIGN_OR_RETURN(const auto partition,
                     reader_.Part(*meta_, *top_, static_cast<uint32_t>(top_->PartitionFor(from))));
    const Fence& fence = partition->fences[FenceFor(*partition, from)];
    page_ = fence.page;
    ahead_ = std::max(ahead_, fence.RunOn(from));
    return Enter();
  }

  bool PositionWithoutIndex() {
    const uint32_t per_extent = reader_.io_->extent_bytes() / kPageBytes;
    page_ = meta_->dropped_extents * per_extent;
    // The pages behind the data fail verification as data: reported, if the footer can't say where
    // they start.
    if (top_ == nullptr) end_ = meta_->pages - meta_->tail_pages;
    return SkipDamage();
  }

  void SeekBackward(const std::string_view* target) {
    valid_ = false;
    status_ = absl::OkStatus();
    behind_ = 0;
    if (target != nullptr && *target <= meta_->smallest) return;
    status_ = PositionBackward(target);
    if (status_.ok()) status_ = StepBackward();
  }

  // Behind the last record with a key below the target.
  absl::Status PositionBackward(const std::string_view* target) {
    ASSIGN_OR_RETURN(top_, reader_.Top(*meta_));
    end_ = top_->footer.data_pages;
    part_ = static_cast<uint32_t>(target != nullptr ? top_->PartitionFor(*target)
                                                    : top_->entries.size() - 1);
    ASSIGN_OR_RETURN(partition_, reader_.Part(*meta_, *top_, part_));
    fence_ = target != nullptr ? FenceFor(*partition_, *target) : partition_->fences.size() - 1;
    RETURN_IF_ERROR(EnterBackward());
    while (target != nullptr && starts_left_ > 0) {
      RETURN_IF_ERROR(
          pages_.ReadRecord(page_, starts_[starts_left_ - 1], end_, false, &scratch_, &record_));
      if (record_.key < *target) break;
      --starts_left_;
    }
    return absl::OkStatus();
  }

  // To the end of the fence's page, where the starts of its records are written down: they are
  // found from the front alone.
  absl::Status EnterBackward() {
    const Fence& fence = partition_->fences[fence_];
    page_ = fence.page;
    starts_.clear();
    starts_left_ = 0;
    const uint32_t begin = meta_->dropped_extents * (reader_.io_->extent_bytes() / kPageBytes);
    if (page_ < begin) return absl::OkStatus();  // where everything is below the table's bound
    const std::byte* bytes;
    PageHeader header;
    RETURN_IF_ERROR(pages_.PageBackward(page_, fence.run_on, behind_, begin, &bytes, &header));
    behind_ = std::min(std::max(behind_ * 2, 1u), capacity_ - 1);
    if (header.first_record == kNoRecordStarts) {
      return reader_.Damaged(*meta_, page_, "an index that points to a page without records");
    }
    for (uint64_t at = header.first_record; at < header.used;) {
      RecordHead head;
      const std::string_view rest(reinterpret_cast<const char*>(bytes) + at, header.used - at);
      if (absl::Status s = ParseRecordHead(rest, &head); !s.ok()) {
        return reader_.Damaged(*meta_, page_, s.message());
      }
      starts_.push_back(static_cast<uint16_t>(at));
      at += head.bytes();
    }
    starts_left_ = starts_.size();
    return absl::OkStatus();
  }

  absl::Status StepBackward() {
    while (starts_left_ == 0) {
      if (fence_ > 0) {
        --fence_;
      } else if (part_ > 0) {
        ASSIGN_OR_RETURN(partition_, reader_.Part(*meta_, *top_, --part_));
        fence_ = PLANT("table.first_fence_backwards") ? 0 : partition_->fences.size() - 1;
      } else {
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(EnterBackward());
      if (starts_.empty()) return absl::OkStatus();
    }
    offset_ = starts_[--starts_left_];
    RETURN_IF_ERROR(pages_.ReadRecord(page_, offset_, end_, false, &scratch_, &record_));
    valid_ = record_.key >= meta_->smallest;
    value_loaded_ = record_.end_page == page_;
    return absl::OkStatus();
  }

  // To the first record that starts in page_.
  absl::Status Enter() {
    const std::byte* bytes;
    PageHeader header;
    RETURN_IF_ERROR(pages_.Page(page_, ahead_, end_, &bytes, &header));
    if (header.first_record == kNoRecordStarts) {
      offset_ = header.used;  // NextStart goes on from here
    } else {
      offset_ = header.first_record;
    }
    return absl::OkStatus();
  }

  void Advance() {
    page_ = record_.end_page;
    offset_ = record_.end_offset;
    valid_ = false;
    if (scratch_.capacity() > kScratchKept) std::string().swap(scratch_);
  }

  // Reads the record at or after (page_, offset_).
  void Load() {
    valid_ = false;
    for (;;) {
      bool found = false;
      absl::Status s = pages_.NextStart(&page_, &offset_, ahead_, end_, &found);
      if (s.ok() && !found) return;
      if (s.ok()) {
        if (page_ != last_page_) {
          last_page_ = page_;
          ahead_ = std::min(ahead_ * 2, capacity_ - 1);
        }
        s = pages_.ReadRecord(page_, offset_, end_, false, &scratch_, &record_);
      }
      if (s.ok()) {
        valid_ = true;
        value_loaded_ = record_.end_page == page_;
        return;
      }
      if (!Passes(s)) return;
      ++page_;
      if (!SkipDamage()) return;
    }
  }

  // Whether the error is damage that is to be passed over; reports it, or keeps it as the end of
  // the stream.
  bool Passes(const absl::Status& s) {
    if (damage_ == nullptr) {
      status_ = s;
      return false;
    }
    damage_(TableName(meta_->id), s);
    return true;
  }

  // To the next page from page_ on in which a record starts; damaged ones are reported.
  bool SkipDamage() {
    for (; page_ < end_; ++page_) {
      const std::byte* bytes;
      PageHeader header;
      const absl::Status s = pages_.Page(page_, 0, end_, &bytes, &header);
      if (s.ok() && header.first_record != kNoRecordStarts) {
        offset_ = header.first_record;
        return true;
      }
      if (!s.ok() && !Passes(s)) return false;
    }
    return false;
  }

  const TableReader reader_;
  const std::shared_ptr<const TableMeta> meta_;
  const DamageSink damage_;
  const uint32_t capacity_;
  const std::unique_ptr<std::byte[]> buffer_;
  PageStream pages_;
  std::shared_ptr<const TopIndex> top_;
  uint32_t end_ = 0;  // of the data pages
  uint32_t page_ = 0, offset_ = 0;
  uint32_t last_page_ = UINT32_MAX;
  uint32_t ahead_ = 1;
  // On the way back: the fence of page_, and of the records that start there those that are left.
  std::shared_ptr<const Partition> partition_;
  uint32_t part_ = 0;
  size_t fence_ = 0;
  std::vector<uint16_t> starts_;
  size_t starts_left_ = 0;
  uint32_t behind_ = 0;
  std::string scratch_;
  PageStream::Record record_;
  bool valid_ = false;
  bool value_loaded_ = false;
  absl::Status status_;
};

std::unique_ptr<InternalIterator> TableReader::NewIterator(std::shared_ptr<const TableMeta> meta,
                                                           DamageSink damage) const {
  return std::make_unique<TableIterator>(*this, std::move(meta), std::move(damage));
}

absl::StatusOr<uint32_t> TableReader::ExtentsBefore(const TableMeta& meta,
                                                    std::string_view smallest) const {
  ASSIGN_OR_RETURN(const auto top, Top(meta));
  ASSIGN_OR_RETURN(const auto partition,
                   Part(meta, *top, static_cast<uint32_t>(top->PartitionFor(smallest))));
  const uint32_t page = partition->fences[FenceFor(*partition, smallest)].page;
  const uint32_t extent = page / (io_->extent_bytes() / kPageBytes);
  if (extent < meta.dropped_extents || extent - meta.dropped_extents >= meta.extents.size()) {
    return Damaged(meta, page, "an index that points outside the table");
  }
  return extent;
}

void TableReader::Verify(const TableMeta& meta, const DamageSink& damage, uint64_t* pages,
                         uint64_t* entries) const {
  const std::string name = TableName(meta.id);
  const uint32_t per_extent = io_->extent_bytes() / kPageBytes;
  const uint32_t begin = meta.dropped_extents * per_extent;
  const auto top_or = Top(meta);
  if (!top_or.ok()) damage(name, top_or.status());
  const TopIndex* const top = top_or.ok() ? top_or->get() : nullptr;
  const uint32_t data_end = top != nullptr ? top->footer.data_pages : meta.pages - meta.tail_pages;

  // Every page, as a page. The tail was read by Top.
  bool pages_whole = true;
  {
    ExtentIo::Lease lease = io_->Acquire();
    const uint32_t chunk = lease.buffer_bytes() / kPageBytes;
    for (uint32_t at = begin; at < meta.pages;) {
      uint32_t n = std::min(chunk, meta.pages - at);
      absl::Status read = ReadPages(lease.queue(), meta, at, n, lease.buffer());
      // Of many it is not known which: one by one, so that the bad one is named and the others
      // read.
      if (!read.ok() && n > 1) read = ReadPages(lease.queue(), meta, at, n = 1, lease.buffer());
      if (!read.ok()) {
        pages_whole = false;
        damage(name, read);
        ++at;
        continue;
      }
      for (uint32_t i = 0; i < n; ++i, ++at, ++*pages) {
        if (top == nullptr && at >= data_end) continue;
        const PageKind kind = at < data_end                       ? PageKind::kData
                              : at < meta.pages - meta.tail_pages ? PageKind::kIndex
                              : at < meta.pages - 1               ? PageKind::kTop
                                                                  : PageKind::kFooter;
        PageHeader header;
        absl::Status s = VerifyAt(meta, at, kind, lease.buffer() + size_t{i} * kPageBytes, &header);
        if (!s.ok() && top == nullptr && kind == PageKind::kData) continue;  // may be an index page
        if (!s.ok()) {
          pages_whole = false;
          damage(name, s);
        }
      }
    }
  }
  if (top == nullptr || !pages_whole) return;

  // The records: ascending, within the bounds, counted, and found by filter and fence.
  auto it = NewIterator(std::make_shared<TableMeta>(meta));
  std::string last;
  SequenceNumber last_sequence = 0;
  uint64_t count = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next(), ++count) {
    const int c = count == 0 ? -1 : last.compare(it->key());
    if (c > 0 || (c == 0 && last_sequence <= it->sequence())) {
      return damage(name, Damaged(meta, begin, "records out of order"));
    }
    if (it->key() > meta.largest || it->sequence() > meta.max_sequence) {
      return damage(name, Damaged(meta, begin, "a record outside the bounds of the table"));
    }
    if (c != 0) {
      const auto part = Part(meta, *top, static_cast<uint32_t>(top->PartitionFor(it->key())));
      if (!part.ok()) return damage(name, part.status());
      if (!FilterMayContain((*part)->filter, it->key())) {
        return damage(name, Damaged(meta, top->entries[0].first_page,
                                    "a filter that denies a key the table has"));
      }
    }
    last.assign(it->key());
    last_sequence = it->sequence();
  }
  *entries += count;
  if (!it->status().ok()) return damage(name, it->status());
  const bool whole = meta.dropped_extents == 0;
  if (count == 0 || count > meta.entries || last != meta.largest ||
      (whole && count > top->footer.entries)) {
    damage(name, Damaged(meta, begin, absl::StrCat(count, " records, ", meta.entries, " written")));
  }
}

}  // namespace ashlar
