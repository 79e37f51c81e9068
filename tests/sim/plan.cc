#include "tests/sim/plan.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace ashlar {
namespace {

constexpr int kLives = 4;

}  // namespace

uint64_t Mix(std::initializer_list<uint64_t> place) {
  uint64_t x = 0x9e3779b97f4a7c15;
  for (const uint64_t p : place) {
    x = (x ^ p) * 0xbf58476d1ce4e5b9;
    x ^= x >> 29;
    x = (x + 0x94d049bb133111eb) * 0xff51afd7ed558ccd;
    x ^= x >> 32;
  }
  return x;
}

Setup SetupOf(uint64_t seed) {
  Dice dice(Mix({seed, 1}));
  Setup s;
  s.device.lba_bytes = dice.OneIn(2) ? 512 : 4096;
  s.device.native_fua = dice.OneIn(2);
  s.device.fua_is_flush = s.device.native_fua && dice.OneIn(3);
  s.device.volatile_cache = !dice.OneIn(8);
  s.device.atomic_blocks = dice.OneIn(2) ? 1 : 8;
  const uint32_t transfers[] = {4u << 10, 32u << 10, 128u << 10, 1u << 20};
  s.device.max_transfer_bytes = transfers[dice.Below(4)];
  s.device.noise = dice.OneIn(2);
  s.device.read_back = static_cast<SimDeviceOptions::ReadBack>(dice.Below(5));
  s.extent_bytes = dice.OneIn(4) ? 256u << 10 : 64u << 10;
  s.memory_bytes = dice.OneIn(4) ? 8u << 20 : 2u << 20;
  const uint64_t bases[] = {0, 64u << 10, 256u << 10, 1u << 20};
  s.level_base_bytes = bases[dice.Below(4)];
  const uint32_t keys[] = {5, 40, 40, 400};
  s.keys = keys[dice.Below(4)];
  const uint32_t large[] = {4, 12, 12, 100};
  s.large = large[dice.Below(4)];
  return s;
}

std::vector<LifePlan> LivesOf(uint64_t seed) {
  std::vector<LifePlan> lives;
  Dice dice(Mix({seed, 2}));
  // What can go wrong differs from run to run: a fault that is always there hides others.
  const bool errors = dice.OneIn(3), reads = dice.OneIn(3), slow = dice.OneIn(3);
  const bool silent = dice.OneIn(6), deaths = !dice.OneIn(4);
  for (int l = 0; l < kLives; ++l) {
    LifePlan life;
    life.seed = Mix({seed, 3, static_cast<uint64_t>(l)});
    Dice d(life.seed);
    const bool last = l + 1 == kLives;
    for (uint32_t& n : life.operations)
      n = static_cast<uint32_t>(20 + d.Below(d.OneIn(3) ? 1500 : 300));
    const auto any_op = [&] {
      return d.OneIn(3) ? io::Op::kRead : d.OneIn(3) ? io::Op::kFlush : io::Op::kWrite;
    };
    if (errors && d.OneIn(2)) {
      DriveFault f;
      f.op = any_op();
      f.at = 1 + d.Below(d.OneIn(3) ? 20 : 300);
      f.persistent = d.OneIn(3);
      const io::IoClass classes[] = {io::IoClass::kRetry, io::IoClass::kPath, io::IoClass::kFull,
                                     io::IoClass::kFatal, io::IoClass::kUnknown};
      f.status = {.cls = classes[d.Below(5)], .err = EIO};
      // Only what was not carried out may be tried again.
      f.effect = f.status.cls == io::IoClass::kRetry ? SimFault::Effect::kNone
                                                     : static_cast<SimFault::Effect>(d.Below(3));
      if (f.status.cls == io::IoClass::kUnknown && f.op == io::Op::kWrite && d.OneIn(2)) {
        f.effect = SimFault::Effect::kLater;
      }
      life.faults.push_back(f);
    }
    for (int i = 0; reads && i < 2; ++i) {
      DriveFault f;
      f.op = io::Op::kRead;
      f.what = d.OneIn(2) ? DriveFault::What::kFlippedBit : DriveFault::What::kWrongPlace;
      f.at = 1 + d.Below(150);
      f.elsewhere = d.Below(1u << 30);
      life.faults.push_back(f);
    }
    for (int i = 0; slow && i < 3; ++i) {
      DriveFault f;
      f.what = DriveFault::What::kSlow;
      f.op = any_op();
      f.at = 1 + d.Below(400);
      f.elsewhere = d.Below(1ull << 40);
      life.faults.push_back(f);
    }
    if (silent && last) {
      DriveFault f;
      f.what = d.OneIn(2) ? DriveFault::What::kLostWrite : DriveFault::What::kStrayWrite;
      f.op = io::Op::kWrite;
      f.at = 1 + d.Below(400);
      f.elsewhere = d.Below(1u << 30);
      life.faults.push_back(f);
    }
    if (deaths && (!last || silent)) {
      life.dies_at = 1 + d.Below(d.OneIn(4) ? 60 : 2500);
    }
    life.power_cut = !d.OneIn(3);
    life.luck = static_cast<SimDevice::Luck>(d.Below(4));
    lives.push_back(std::move(life));
  }
  return lives;
}

size_t LifePlan::items() const {
  size_t n = faults.size() + (dies_at > 0);
  for (const uint32_t o : operations) n += o;
  return n;
}

std::string FaultText(const DriveFault& f) {
  static constexpr const char* kWhats[] = {
      "fails", "returns a wrong bit", "reads elsewhere", "is slow", "is lost", "lands elsewhere"};
  static constexpr const char* kOps[] = {"read", "write", "flush", "deallocate"};
  static constexpr const char* kClasses[] = {"ok", "full", "retry", "path", "fatal", "unknown"};
  static constexpr const char* kEffects[] = {"whole", "part", "none", "later"};
  std::string text =
      absl::StrCat(kOps[static_cast<int>(f.op)], " ", f.at, " ",
                   f.persistent ? "and all later ones " : "", kWhats[static_cast<int>(f.what)]);
  if (f.what == DriveFault::What::kStatus) {
    absl::StrAppend(&text, " (", kClasses[static_cast<int>(f.status.cls)], "), effect ",
                    kEffects[static_cast<int>(f.effect)]);
  }
  return text;
}

}  // namespace ashlar
