#include "toolkit/distributed/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/catch.h"

TEST_CASE("a place answers while somebody listens there, and says why not otherwise") {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(socket >= 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(bind(socket, reinterpret_cast<const sockaddr*>(&place), size) == 0);
  REQUIRE(getsockname(socket, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  const int64_t port = ntohs(place.sin_port);
  CHECK(dtk::connection_problem("127.0.0.1", port) == "Connection refused");
  REQUIRE(listen(socket, 1) == 0);
  CHECK(dtk::connection_problem("127.0.0.1", port).empty());
  close(socket);
  CHECK(dtk::connection_problem("127.0.0.1", port) == "Connection refused");
  CHECK_FALSE(dtk::connection_problem("no-such-host.invalid", port).empty());
}
