#include "toolkit/distributed/listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace dtk {
namespace {

constexpr int kMilliseconds = 1000;

std::string problem_at(const addrinfo& place) {
  const int socket =
      ::socket(place.ai_family, place.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, place.ai_protocol);
  if (socket < 0) return std::strerror(errno);
  int error = connect(socket, place.ai_addr, place.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiting{.fd = socket, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof error;
    if (poll(&waiting, 1, kMilliseconds) < 1) {
      error = ETIMEDOUT;
    } else if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  close(socket);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace

std::string connection_problem(const std::string& host, int64_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) return gai_strerror(error);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> places(found, &freeaddrinfo);
  std::string problem;
  for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
    problem = problem_at(*place);
    if (problem.empty()) break;
  }
  return problem;
}

}  // namespace dtk
