// A few threads that share out the numbers of a loop whose passes are independent.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dtk {

/// Its threads wait between loops. For one calling thread.
class ThreadTeam {
 public:
  /// Of `threads`, at least 1, the calling one among them: 1 starts none. Throws std::system_error where the
  /// system gives no more.
  explicit ThreadTeam(int64_t threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// Calls work(i) once for each i in [0, count), on any of the threads, and returns when all are done. Once
  /// a call threw, no more numbers are given out; what the lowest of them threw comes out, as it would of a
  /// plain loop.
  void run(int64_t count, const std::function<void(int64_t)>& work);

 private:
  void end();
  void wait_for_loops();
  void take_part();
  void failed(int64_t number);

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  // Protected by mutex_.
  const std::function<void(int64_t)>* work_ = nullptr;
  int64_t loops_ = 0;  // begun
  int64_t next_ = 0, count_ = 0, at_once_ = 1;
  size_t busy_ = 0;  // of others_
  bool stop_ = false;
  std::exception_ptr error_;
  int64_t error_number_ = 0;

  std::vector<std::thread> others_;  // last: they start when all else is built
};

}  // namespace dtk
