// dit-export: writes a model's weights for other programs.
#include <cstdio>

#include "toolkit/commands/arguments.h"
#include "toolkit/commands/export.h"
#include "toolkit/core/text.h"
#include "toolkit/programs/process_settings.h"
#include "toolkit/programs/terminal.h"

namespace {

using namespace dtk;

ExitCode export_weights(int argc, const char* const* argv) {
  const ExportArguments arguments = parse_export_arguments(argc, argv);
  if (print_text_only(arguments, "dit-export", export_help)) return ExitCode::done;
  FileSystem& files = posix_file_system();
  const ExportedWeights weights = weights_to_export(files, arguments);
  write_export(files, arguments, weights);
  if (!weights.conversion.empty()) std::printf("%s\n", printable(weights.conversion).c_str());
  std::printf("%zu tensors of %s: %s\n", weights.tensors.size(), printable(weights.name).c_str(),
              printable(arguments.adapter.empty() ? arguments.out : arguments.adapter).c_str());
  return ExitCode::done;
}

}  // namespace

int main(int argc, char** argv) {
  dtk::apply_process_settings();
  dtk::leave(dtk::run_program("dit-export", "free memory and start again",
                              [&] { return export_weights(argc, argv); }));
}
