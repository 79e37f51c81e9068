// The cases of one test, numbered: which of them are run follows from the scale and the seed, and
// one that fails says how to run it alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/damage/checker.h"

namespace ashlar {

class Cases {
 public:
  // `kind` is the name of the count: what was done with each case. At full scale at least `least`
  // are run.
  Cases(std::string kind, uint64_t least);
  ~Cases();  // counts

  // One more case: whether it is to be run. False for all once some have failed.
  bool Next();
  // A number for the case's choices, the same whichever other cases are run.
  uint64_t Salt(uint64_t n = 0) const;
  // The case was not run after all: it would have changed nothing.
  void Skip() { --run_; }
  // The verdict on the case; `wrong` empty: right.
  void Done(std::string_view what, const std::string& wrong);
  // Every 1 in n of the cases.
  bool One(uint64_t n, uint64_t salt) const { return Salt(salt) % n == 0; }
  // Runs it on a whole store: with check, and one in so many opened for writing and salvaged.
  void Run(Checker* checker, const Case& c, uint64_t write = 16, uint64_t salvage = 32);

  uint64_t run() const { return run_; }
  uint64_t possible() const { return index_; }
  bool stopped() const { return failed_ >= 5; }

 private:
  const std::string kind_;
  const std::string test_;
  const uint64_t least_;
  uint64_t only_ = UINT64_MAX;  // ASHLAR_DAMAGE_CASE
  uint64_t index_ = 0, run_ = 0;
  uint64_t live_ = 0;  // of those run on a whole store: how many changed something live
  int failed_ = 0;
};

}  // namespace ashlar
