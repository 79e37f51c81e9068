#include "io/request.h"

#include <cerrno>

#include "io/check.h"

namespace ashlar::io {
namespace {

bool Inside(Lba lba, uint64_t blocks, const Geometry& geometry) {
  return Raw(lba) <= geometry.capacity_blocks && blocks <= geometry.capacity_blocks - Raw(lba);
}

}  // namespace

IoStatus CheckRequest(const Request& request, const Geometry& geometry, const Arena& arena) {
  constexpr IoStatus kBeyond{.cls = IoClass::kFatal, .err = ERANGE};
  CHECK(request.metadata.empty());
  switch (request.op) {
    case Op::kRead:
    case Op::kWrite: {
      CHECK(request.blocks > 0);
      CHECK(request.data.size() == 1);
      const Piece& piece = request.data[0];
      CHECK(piece.bytes == uint64_t{request.blocks} * geometry.lba_bytes);
      CHECK(piece.offset % geometry.lba_bytes == 0);
      CHECK(uint64_t{piece.offset} + piece.bytes <= Arena::kPieceBytes);
      CHECK(piece.buffer * Arena::kPieceBytes + piece.offset + piece.bytes <= arena.size());
      return Inside(request.lba, request.blocks, geometry) ? IoStatus{} : kBeyond;
    }
    case Op::kDeallocate:
      CHECK(!request.ranges.empty());
      for (const LbaRange& range : request.ranges) {
        CHECK(range.blocks > 0);
        if (!Inside(range.lba, range.blocks, geometry)) return kBeyond;
      }
      return {};
    case Op::kFlush:
      return {};
  }
  CHECK(false);
}

IoStatus FromErrno(Op op, int err) {
  CHECK(err > 0);
  IoClass cls = IoClass::kFatal;
  switch (err) {
    case ENOSPC:
    case EDQUOT:
      cls = IoClass::kFull;
      break;
    case EINTR:
    case ECANCELED:
    case ENODEV:
    case ENXIO:
    case ETIMEDOUT:
    case ESHUTDOWN:
      cls = op == Op::kRead ? IoClass::kPath : IoClass::kUnknown;
      break;
    case EAGAIN:
    case ENOMEM:
      cls = IoClass::kRetry;
      break;
    default:
      break;
  }
  return {.cls = cls, .err = err};
}

}  // namespace ashlar::io
