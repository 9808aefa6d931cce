#include <dtk/toolkit/config_io.h>
#include <dtk/toolkit/memory_report.h>
#include <dtk/toolkit/planned_run.h>

#include <cstdio>

#include "program.h"
using namespace dtk;
int main(int argc, char** argv) {
  return run_program("dit-plan", "", [&] {
    std::vector<std::string> set;
    for (int i = 3; i < argc; ++i) set.push_back(argv[i]);
    LoadedConfig loaded = load_config(posix_file_system(), argv[2], set);
    loaded.config.train.threads = 1;
    auto plan = plan_run(loaded, c10::Device(std::string(argv[1])));
    MemoryReport r;
    r.device = argv[1];
    r.phases = plan.device;
    r.host = policies::highest(plan.host);
    std::printf("%s\n", memory_table(r).c_str());
    for (auto& p : plan.device) std::printf("%s %lld\n", p.name.c_str(), (long long)p.peak.bytes);
    for (auto& p : plan.host) std::printf("host %s %lld\n", p.name.c_str(), (long long)p.peak.bytes);
    for (auto& [w, n] : plan.folded) std::printf("folded %s %lld\n", w.c_str(), (long long)n);
    std::printf("%.3f s\n", plan.seconds);
    return ExitCode::done;
  });
}
