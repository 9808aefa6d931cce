// Samples of a trained model, as dit-sample draws and writes them.
#pragma once
#include <c10/core/Device.h>

#include <map>
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/config/config.h"
#include "toolkit/data/held_out.h"
#include "toolkit/diffusion/denoiser.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"
#include "toolkit/train/sample_arguments.h"

namespace dtk {

/// A trained model: its configuration, and its weights, which are still in their file.
struct SampleSource {
  RunConfig config;
  std::map<std::string, std::string> locations;  // LoadedConfig's
  Weights weights;
  std::vector<std::string> class_names = {};  // by label; empty: numbers, or not known
  bool random = false;                        // there are no weights: the model's own draws are taken
};

/// What was asked for, once it is known to be possible.
class Drawing {
 public:
  virtual ~Drawing() = default;
  virtual RunData data() const { return {}; }  ///< which the samples continue; null if they continue nothing
  virtual std::string counted() const = 0;     ///< "1 sample", "60 frames"
  virtual std::vector<std::string> notes() const { return {}; }  ///< what is said before it is drawn
  virtual std::string remark() const { return ""; }  ///< what is said once it is written; "": nothing
  /// Draws and writes --out; false if `keep_going` gave up: nothing is written then. Throws ConfigError for
  /// weights of another model, and for a policy that the configuration asks for and that cannot act;
  /// FileError, and --out is what it was.
  virtual bool draw_to(FileSystem& files, c10::Device device, const KeepGoing& keep_going) const = 0;
};

/// Of samples that are in memory until the last is drawn.
class TensorDrawing : public Drawing {
 public:
  bool draw_to(FileSystem& files, c10::Device device, const KeepGoing& keep_going) const final {
    const std::vector<NamedTensor> samples = draw(device, keep_going);
    if (samples.empty()) return false;
    write(files, samples);
    return true;
  }
  virtual std::vector<NamedTensor> draw(c10::Device device,
                                        const KeepGoing& keep_going) const = 0;  ///< on the CPU
  virtual void write(FileSystem& files, const std::vector<NamedTensor>& samples) const = 0;
};

/// Throws ConfigError if the folder of --out does not exist.
void check_out_folder(FileSystem& files, const std::string& out);

}  // namespace dtk
