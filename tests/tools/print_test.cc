// What reaches a terminal.
#include "print.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

namespace ashlar::tools {
namespace {

TEST(Escape, KeepsWhatIsSafeToSee) {
  EXPECT_EQ(EscapeForTerminal("plain ~ M\u00fcller \u65e5\u672c", Lines::kEscape),
            "plain ~ M\u00fcller \u65e5\u672c");
}

TEST(Escape, WritesLinesAsAsked) {
  EXPECT_EQ(EscapeForTerminal("a\tb\nc\\d\r", Lines::kEscape), "a\\tb\\nc\\\\d\\x0d");
  EXPECT_EQ(EscapeForTerminal("a\tb\nc\\d\r", Lines::kKeep), "a\tb\nc\\d\\x0d");
}

TEST(Escape, NothingActsOnTheTerminal) {
  EXPECT_EQ(EscapeForTerminal("\x1b[31m\x07\x7f", Lines::kKeep), "\\x1b[31m\\x07\\x7f");
  EXPECT_EQ(EscapeForTerminal(std::string("\0", 1), Lines::kKeep), "\\x00");
  EXPECT_EQ(EscapeForTerminal("\u009b31m", Lines::kKeep), "\\xc2\\x9b31m");  // C1 CSI as UTF-8
  EXPECT_EQ(EscapeForTerminal("\x9b", Lines::kKeep), "\\x9b");               // and as a byte
  EXPECT_EQ(EscapeForTerminal("\u202e\u2066\u200b", Lines::kKeep),           // reorders or hides
            "\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xe2\\x80\\x8b");
}

TEST(Utf8, TakesOnlyShortestFormsOfRealCharacters) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\u00e9\u20ac\U0001f600"));
  EXPECT_FALSE(IsUtf8("\x80"));
  EXPECT_FALSE(IsUtf8("\xc3"));
  EXPECT_FALSE(IsUtf8("\xc0\x80"));
  EXPECT_FALSE(IsUtf8("\xe0\x9f\xbf"));
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));
  EXPECT_FALSE(IsUtf8("\xf0\x8f\xbf\xbf"));
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));
  EXPECT_FALSE(IsUtf8("\xf8\x88\x80\x80\x80"));
  EXPECT_FALSE(IsUtf8("\xe2\x82"));
}

TEST(Quoted, CutsLongText) {
  EXPECT_EQ(Quoted("abc", 3), "\"abc\"");
  EXPECT_EQ(Quoted("abcd", 3), "\"abc\"...");
}

TEST(Hex, ReadsBothCasesAndNamesTheBadPlace) {
  EXPECT_EQ(ToHex(std::string("\0\xffz", 3)), "00ff7a");
  EXPECT_EQ(*FromHex("00fF7A"), std::string("\0\xffz", 3));
  EXPECT_EQ(*FromHex(""), "");
  EXPECT_EQ(FromHex("00f").status().message(),
            "not hexadecimal at character 3: expected two digits, found \"f\"");
  EXPECT_EQ(FromHex("0g").status().message(),
            "not hexadecimal at character 1: expected two digits, found \"0g\"");
}

TEST(Sizes, AreReadInPowersOf1024) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("64K"), 65536u);
  EXPECT_EQ(*ParseBytes("8G"), 8ull << 30);
  EXPECT_EQ(*ParseBytes("16383T"), 16383ull << 40);
  EXPECT_EQ(*ParseBytes("16777215T"), 16777215ull << 40);
  for (const char* bad : {"", "G", "8X", "8g", "-1", "1.5G", "8GB", " 8", "16777216T",
                          "18446744073709551616", "99999999999999999999"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(Sizes, AreWrittenWithUnits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(~0ull), "16.0 EiB");
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
}

TEST(Columns, AreAlignedByCharacters) {
  Columns columns("lr");
  columns.Row({"\u00fc", "1"});
  columns.Row({"abc", "100"});
  EXPECT_EQ(columns.Text(), "\u00fc      1\nabc  100\n");
}

TEST(Output, NamesAWriteThatFailed) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Output out(full);
  out.Write("x");
  const absl::Status s = out.Flush();
  EXPECT_EQ(s.message(), "cannot write standard output: No space left on device");
  EXPECT_FALSE(out.open());
  EXPECT_EQ(out.Flush(), s);
  close(full);
}

TEST(Output, AReaderThatWentAwayIsNoError) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  Output out(ends[1]);
  out.Write("x");
  EXPECT_TRUE(out.Flush().ok());
  EXPECT_FALSE(out.open());
  close(ends[1]);
}

}  // namespace
}  // namespace ashlar::tools
