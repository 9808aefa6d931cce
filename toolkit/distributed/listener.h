// Whether somebody listens at a place of the network yet.
#pragma once
#include <cstdint>
#include <string>

namespace dtk {

/// Why a connection to the port of that host cannot be made now, "Connection refused"; "" where it can: it is
/// made, and closed. Takes a second at most, and as long as the host's name takes to be found.
std::string connection_problem(const std::string& host, int64_t port);

}  // namespace dtk
