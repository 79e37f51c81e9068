// The formats of load and dump, without a store: what is written is read back, and hostile input
// ends in an error that names its place.
#include "record_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/db.h"
#include "json_text.h"
#include "print.h"

namespace ashlar::tools {
namespace {

uint64_t seed = 1;  // --seed=N

using Record = std::pair<std::string, std::string>;
using Random = std::mt19937_64;

constexpr RecordFormat kFormats[] = {RecordFormat::kTsv, RecordFormat::kJsonl,
                                     RecordFormat::kBinary, RecordFormat::kStanza};

// Hands the text out in pieces of 1 to `most` bytes.
ByteSource Pieces(std::string text, size_t most, uint64_t piece_seed) {
  return [text = std::move(text), most, random = Random(piece_seed), at = size_t{0}](
             char* to, size_t bytes) mutable -> absl::StatusOr<size_t> {
    const size_t n = std::min({text.size() - at, bytes, 1 + random() % most});
    memcpy(to, text.data() + at, n);
    at += n;
    return n;
  };
}

// All records, and the error that ended the reading.
absl::Status ReadAll(RecordReader* reader, std::vector<Record>* records) {
  while (true) {
    const absl::StatusOr<bool> more = reader->Next();
    if (!more.ok()) return more.status();
    if (!*more) return absl::OkStatus();
    records->emplace_back(reader->key(), reader->value());
  }
}

std::string ErrorOf(RecordFormat format, const std::string& text, size_t piece_bytes = 7) {
  RecordReader reader(format, "Package", Pieces(text, piece_bytes, 1));
  std::vector<Record> records;
  const absl::Status s = ReadAll(&reader, &records);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  return std::string(Std(s.message()));
}

std::vector<Record> Read(RecordFormat format, const std::string& text) {
  RecordReader reader(format, "Package", Pieces(text, 7, 1));
  std::vector<Record> records;
  EXPECT_TRUE(ReadAll(&reader, &records).ok());
  return records;
}

std::string RandomBytes(Random& random, size_t most) {
  std::string bytes(random() % (most + 1), '\0');
  const bool nasty = random() % 2 == 0;
  for (char& c : bytes) {
    c = nasty ? "\t\n\\x\"\0a0\x7f\xc3\xbc"[random() % 11] : static_cast<char>(random());
  }
  return bytes;
}

Record RandomRecord(Random& random, RecordFormat format) {
  std::string key = RandomBytes(random, 40);
  if (key.empty()) key = "k";
  if (format != RecordFormat::kStanza) return {key, RandomBytes(random, 300)};
  // A stanza's key is text on one line, its value lines that are not empty.
  for (char& c : key) c = static_cast<char>('a' + static_cast<uint8_t>(c) % 26);
  std::string value = "X: " + std::to_string(random()) + "\nPackage:  " + key + "\t\n";
  for (size_t lines = random() % 5; lines > 0; --lines) {
    std::string line = RandomBytes(random, 60);
    std::replace(line.begin(), line.end(), '\n', ' ');
    value += " " + line + "\n";
  }
  return {key, value};
}

TEST(RecordFormat, ReadsBackRandomRecords) {
  printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (const RecordFormat format : kFormats) {
    const RecordWriter writer(format, "Package");
    for (int round = 0; round < 50; ++round) {
      std::vector<Record> wrote, read;
      std::string text;
      for (size_t n = random() % 30; n > 0; --n) {
        wrote.push_back(RandomRecord(random, format));
        const absl::Status s = writer.Append(wrote.back().first, wrote.back().second, &text);
        ASSERT_TRUE(s.ok()) << s;
      }
      RecordReader reader(format, "Package", Pieces(text, 1 + random() % 200, random()));
      const absl::Status s = ReadAll(&reader, &read);
      ASSERT_TRUE(s.ok()) << s;
      ASSERT_EQ(read, wrote);
      EXPECT_EQ(reader.bytes_read(), text.size());
    }
  }
}

TEST(RecordFormat, HostileInputEndsInAnError) {
  printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (const RecordFormat format : kFormats) {
    for (int round = 0; round < 500; ++round) {
      std::string text;
      const RecordWriter writer(format, "Package");
      for (int n = 0; n < 5; ++n) {
        const auto [key, value] = RandomRecord(random, format);
        ASSERT_TRUE(writer.Append(key, value, &text).ok());
      }
      for (size_t hits = 1 + random() % 4; hits > 0; --hits) {
        text[random() % text.size()] = static_cast<char>(random());
      }
      text.resize(random() % (text.size() + 1));
      RecordReader reader(format, "Package", Pieces(text, 50, random()));
      std::vector<Record> records;
      const absl::Status s = ReadAll(&reader, &records);
      if (s.ok()) continue;  // what was hit may still be a record
      EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
      EXPECT_NE(s.message().find("(byte "), absl::string_view::npos) << s;
    }
  }
}

TEST(RecordFormat, WritesTextThatATerminalMaySee) {
  std::string all;
  for (int c = 255; c >= 0; --c) all.push_back(static_cast<char>(c));
  for (const RecordFormat format : {RecordFormat::kTsv, RecordFormat::kJsonl}) {
    std::string text;
    ASSERT_TRUE(RecordWriter(format, "").Append(all, all, &text).ok());
    ASSERT_TRUE(RecordWriter(format, "").Append("\x1b[2J\u202e\u009b", "\x7f", &text).ok());
    for (const char c : text) {
      EXPECT_TRUE((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t') << int{c};
    }
  }
}

TEST(RecordFormat, PassesAnErrorOfTheSourceOn) {
  for (const RecordFormat format : kFormats) {
    RecordReader reader(format, "Package", [](char*, size_t) -> absl::StatusOr<size_t> {
      return absl::InternalError("the disk is gone");
    });
    EXPECT_EQ(reader.Next().status(), absl::InternalError("the disk is gone"));
  }
}

TEST(RecordFormat, SaysWhereARecordBegan) {
  RecordReader tsv(RecordFormat::kTsv, "", Pieces("a\tb\ncc\tdd\n", 3, 1));
  ASSERT_TRUE(*tsv.Next());
  EXPECT_EQ(tsv.Place(), "line 1 (byte 0)");
  ASSERT_TRUE(*tsv.Next());
  EXPECT_EQ(tsv.Place(), "line 2 (byte 4)");
  RecordReader stanza(RecordFormat::kStanza, "P", Pieces("\n\nP: a\nQ: b\n\nP: c\n", 3, 1));
  ASSERT_TRUE(*stanza.Next());
  EXPECT_EQ(stanza.Place(), "line 3 (byte 2)");
  ASSERT_TRUE(*stanza.Next());
  EXPECT_EQ(stanza.Place(), "line 6 (byte 13)");
}

TEST(RecordFormat, RefusesAnEmptyAndAnOversizedKey) {
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "a\tb\n\tc\n"), "line 2 (byte 4): the key is empty");
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, std::string(4097, 'k') + "\tv\n"),
            "line 1 (byte 0): a key of 4,097 bytes, the limit is 4,096");
  EXPECT_EQ(ErrorOf(RecordFormat::kStanza, "Package: \nA: b\n"),
            "line 1 (byte 0): the key is empty");
}

TEST(RecordFormat, RefusesAnOversizedValue) {
  const std::string value(DB::kMaxValueBytes + 1, 'v');
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "k\t" + value, 1 << 20),
            "line 1 (byte 0): a value of 16,777,217 bytes, the limit is 16,777,216");
  EXPECT_EQ(ErrorOf(RecordFormat::kStanza, "Package: a\n" + value + "\n", 1 << 20),
            "line 1 (byte 0): a stanza of more than 16,777,216 bytes");
}

TEST(RecordFormat, ALineLongerThanAnyRecordIsNotCollected) {
  size_t given = 0;
  RecordReader reader(RecordFormat::kTsv, "", [&given](char* to, size_t bytes) {
    memset(to, 'x', bytes);
    given += bytes;
    return absl::StatusOr<size_t>(bytes);
  });
  const absl::Status s = reader.Next().status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(s.message().find("line 1 (byte 0): longer than any record"), absl::string_view::npos);
  EXPECT_LT(given, size_t{128} << 20);
}

TEST(Tsv, ReadsEscapesAndBytesAsTheyAre) {
  EXPECT_EQ(Read(RecordFormat::kTsv, "\\x00\\t\tA\\n\\\\\\xfF\xc3\xbc\r\nb\t"),
            (std::vector<Record>{{std::string("\0\t", 2), "A\n\\\xff\xc3\xbc\r"}, {"b", ""}}));
}

TEST(Tsv, NamesWhatItFound) {
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "a\tb\nbad\n"),
            "line 2 (byte 4): no tab between key and value, found \"bad\"");
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "a\tb\n\nc\td\n"),
            "line 2 (byte 4): no tab between key and value, found \"\"");
  EXPECT_EQ(
      ErrorOf(RecordFormat::kTsv, "a\tb\tc\n"),
      "line 1 (byte 0): a second tab at byte 3, found \"\\tc\"; inside a value it is written \\t");
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "a\tb\nc\tdd\\x0g\n"),
            "line 2 (byte 4): no escape at byte 8, expected \\t, \\n, \\\\ or \\xHH, found \\x0g");
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "\\q\tb\n"),
            "line 1 (byte 0): no escape at byte 0, expected \\t, \\n, \\\\ or \\xHH, found \\q");
  EXPECT_EQ(ErrorOf(RecordFormat::kTsv, "a\tb\\"),
            "line 1 (byte 0): no escape at byte 3, expected \\t, \\n, \\\\ or \\xHH, found \\");
}

TEST(Jsonl, UsesBase64ForWhatIsNotUtf8) {
  EXPECT_EQ(JsonRecord("k\xc3\xbc", "a\n"), "{\"k\":\"k\\u00fc\",\"v\":\"a\\n\"}\n");
  EXPECT_EQ(JsonRecord("\xff", "\xed\xa0\x80"), "{\"k64\":\"/w==\",\"v64\":\"7aCA\"}\n");
}

TEST(Jsonl, ReadsAnyOrderAndBlanks) {
  EXPECT_EQ(Read(RecordFormat::kJsonl, " { \"v\" : \"\" , \"k64\":\"/w==\" } \r\n"),
            (std::vector<Record>{{"\xff", ""}}));
}

TEST(Jsonl, NamesWhatItFound) {
  const auto error = [](const std::string& line) {
    const std::string text = ErrorOf(RecordFormat::kJsonl, "{\"k\":\"a\",\"v\":\"\"}\n" + line);
    const std::string place = "line 2 (byte 17): ";
    EXPECT_EQ(text.substr(0, place.size()), place);
    return text.substr(place.size(), text.find(", found ") - place.size());
  };
  EXPECT_EQ(error("{\"k\":\"a\"}"), "neither v nor v64");
  EXPECT_EQ(error("{\"v\":\"a\"}"), "neither k nor k64");
  EXPECT_EQ(error("{\"k\":\"a\",\"v\":7}"), "v is not a string");
  EXPECT_EQ(error("{\"k\":\"a\",\"v\":{}}"), "v is not a string");
  EXPECT_EQ(error("{\"k\":\"a\",\"v\":[]}"), "v is not a string");
  EXPECT_EQ(error("[\"a\"]"), "no JSON object");
  EXPECT_EQ(error("\"a\""), "no JSON object");
  EXPECT_EQ(error("{\"k\":\"a\",\"x\":\"\"}"), "unknown field \"x\"");
  EXPECT_EQ(error("{\"k\":\"a\",\"k64\":\"\"}"), "a second k64");
  EXPECT_EQ(error("{\"k64\":\"*\",\"v\":\"\"}"), "k64 is not base64");
  EXPECT_EQ(error("{\"k\":\"a\" \"v\":\"\"}").substr(0, 30), "no JSON at byte 12 of the line");
  EXPECT_EQ(error(std::string(100000, '[')), "no JSON object");
}

TEST(Binary, IsLengthsThenBytes) {
  std::string text;
  ASSERT_TRUE(RecordWriter(RecordFormat::kBinary, "").Append("key", "va", &text).ok());
  EXPECT_EQ(text, std::string("\3\0\0\0\2\0\0\0keyva", 13));
}

TEST(Binary, NamesWhatItFound) {
  const std::string first("\1\0\0\0\0\0\0\0k", 9);
  EXPECT_EQ(
      ErrorOf(RecordFormat::kBinary, first + "\1"),
      "record 2 (byte 9): the input ends inside the record: expected 8 bytes of lengths, found 1");
  EXPECT_EQ(
      ErrorOf(RecordFormat::kBinary, first + std::string("\2\0\0\0\4\0\0\0kk", 10)),
      "record 2 (byte 9): the input ends inside the record: expected 6 bytes of key and value, "
      "found 2");
  EXPECT_EQ(
      ErrorOf(RecordFormat::kBinary, first + "\xff\xff\xff\xff\xff\xff\xff\xff"),
      "record 2 (byte 9): lengths of 4,294,967,295 and 4,294,967,295 bytes, the limits are 4,096 "
      "and 16,777,216");
  EXPECT_EQ(ErrorOf(RecordFormat::kBinary, std::string(8, '\0')),
            "record 1 (byte 0): the key is empty");
}

TEST(Stanza, ValueIsTheLinesWithoutTheEmptyOne) {
  EXPECT_EQ(
      Read(RecordFormat::kStanza, "\n\nA: b\npackage:\tx \n more\n\n\n\nPackage: y\nPackage: z"),
      (std::vector<Record>{{"x", "A: b\npackage:\tx \n more\n"},
                           {"y", "Package: y\nPackage: z\n"}}));
}

TEST(Stanza, NamesWhatItFound) {
  EXPECT_EQ(ErrorOf(RecordFormat::kStanza, "Package: a\n\nPackages: b\n Package: c\n\n"),
            "line 3 (byte 12): a stanza without the field Package, found \"Packages: b\"");
}

TEST(Stanza, IsNotWrittenWhenItWouldNotBeReadBack) {
  const RecordWriter writer(RecordFormat::kStanza, "Package");
  const auto error = [&writer](std::string_view key, std::string_view value) {
    std::string out;
    const absl::Status s = writer.Append(key, value, &out);
    EXPECT_EQ(out, "");
    return std::string(Std(s.message()));
  };
  const std::string a = "the record of key \"a\" is no stanza: ";
  EXPECT_EQ(error("a", "Package: a"), a + "its value does not end with a newline");
  EXPECT_EQ(error("a", ""), a + "its value does not end with a newline");
  EXPECT_EQ(error("a", "\nPackage: a\n"), a + "its value holds an empty line");
  EXPECT_EQ(error("a", "Package: a\n\nx\n"), a + "its value holds an empty line");
  EXPECT_EQ(error("a", "Package: b\n"), a + "its field Package is \"b\"");
  EXPECT_EQ(error("a", "Pack: a\n"), a + "its field Package is missing");
}

}  // namespace
}  // namespace ashlar::tools

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--seed=", 7) == 0)
      ashlar::tools::seed = strtoull(argv[i] + 7, nullptr, 10);
  }
  return RUN_ALL_TESTS();
}
