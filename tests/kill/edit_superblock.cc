// Makes a store look as if a later program had written it: changes one field in all four
// superblocks of the file or device at argv[1], checksums included.
//   edit_superblock PATH version|incompatible|read-only|compatible
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "engine/format/superblock.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string what = argv[2];
  const int fd = open(argv[1], O_RDWR);
  const off_t size = lseek(fd, 0, SEEK_END);
  if (fd < 0 || size <= 0) return 2;
  for (int copy = 0; copy < ashlar::kSuperblockCopies; ++copy) {
    const off_t at = static_cast<off_t>(ashlar::SuperblockPlace(copy, static_cast<uint64_t>(size)));
    std::byte block[ashlar::kSuperblockBytes];
    ashlar::Superblock sb;
    std::string detail;
    if (pread(fd, block, sizeof(block), at) != static_cast<ssize_t>(sizeof(block))) return 2;
    if (ashlar::ParseSuperblock(block, copy, &sb, &detail) != ashlar::SuperblockParse::kOk) {
      std::fprintf(stderr, "copy %d: %s\n", copy, detail.c_str());
      return 2;
    }
    if (what == "version") {
      sb.format_version = ashlar::kFormatVersion + 1;
    } else if (what == "incompatible") {
      sb.features_incompatible |= uint64_t{1} << 40;
    } else if (what == "read-only") {
      sb.features_read_only_compatible |= uint64_t{1} << 41;
    } else if (what == "compatible") {
      sb.features_compatible |= uint64_t{1} << 42;
    } else {
      return 2;
    }
    ashlar::EncodeSuperblock(sb, copy, block);
    if (pwrite(fd, block, sizeof(block), at) != static_cast<ssize_t>(sizeof(block))) return 2;
  }
  return fsync(fd) == 0 ? 0 : 2;
}
