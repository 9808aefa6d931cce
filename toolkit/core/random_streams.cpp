#include "toolkit/core/random_streams.h"

#include "toolkit/core/mix64.h"

namespace dtk {

uint64_t stream_seed(int64_t seed, std::string_view name) {
  uint64_t key = static_cast<uint64_t>(seed);
  for (const char letter : name) key = draw64(key, static_cast<unsigned char>(letter));
  return key;
}

}  // namespace dtk
