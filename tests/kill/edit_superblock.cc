// Rewrites one field of all four superblock copies of an image, checksums made right: what a later
// version, or another device, would have written.
//
//   edit_superblock IMAGE version|feature
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "engine/format/superblock.h"

int main(int argc, char** argv) {
  using namespace ashlar;
  if (argc != 3) return 2;
  std::fstream image(argv[1], std::ios::in | std::ios::out | std::ios::binary);
  image.seekg(0, std::ios::end);
  const auto bytes = static_cast<uint64_t>(image.tellg());
  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    std::byte block[kSuperblockBytes];
    const auto at = static_cast<std::streamoff>(SuperblockPlace(copy, bytes));
    image.seekg(at);
    image.read(reinterpret_cast<char*>(block), sizeof block);
    Superblock sb;
    std::string detail;
    if (ParseSuperblock(block, copy, &sb, &detail) != SuperblockParse::kOk) {
      std::fprintf(stderr, "copy %d: %s\n", copy, detail.c_str());
      return 1;
    }
    if (std::strcmp(argv[2], "version") == 0) {
      sb.format_version = kFormatVersion + 1;
    } else if (std::strcmp(argv[2], "feature") == 0) {
      sb.features_incompatible = 8;
    } else {
      return 2;
    }
    EncodeSuperblock(sb, copy, block);
    image.seekp(at);
    image.write(reinterpret_cast<const char*>(block), sizeof block);
  }
  return image.good() ? 0 : 1;
}
