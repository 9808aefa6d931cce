// A file system in memory that tells what would survive a power cut: file content after sync(), names after
// sync_directory(). It is the harshest disk the interface allows; a real one may keep more.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

namespace dtk::test {

class MemoryFileSystem : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const Path& path) override {
    const std::shared_ptr<Node> node = file_node(path);
    node->content.clear();
    return std::make_unique<File>(node);
  }

  std::unique_ptr<WritableFile> append(const Path& path) override {
    return std::make_unique<File>(file_node(path));
  }

  using FileSystem::read;
  std::string read(const Path& path, uint64_t most) override {
    const std::string& content = existing(path)->content;
    if (content.size() > most)
      throw FileError("cannot read " + path.string() + ": it has more than " + std::to_string(most) +
                      " bytes");
    return content;
  }

  void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) override {
    const std::string& content = existing(path)->content;
    if (offset + bytes > content.size()) throw FileError("cannot read " + path.string() + ": too short");
    std::memcpy(data, content.data() + offset, bytes);
  }

  bool exists(const Path& path) override { return find(path) != nullptr; }
  bool is_folder(const Path& path) override {
    const std::shared_ptr<Node> node = find(path);
    return node != nullptr && !node->is_file;
  }
  uint64_t size(const Path& path) override { return existing(path)->content.size(); }

  std::vector<std::string> list(const Path& folder) override {
    std::vector<std::string> names;
    if (const std::shared_ptr<Node> node = find(folder)) {
      for (const auto& [name, child] : node->children) names.push_back(name);
    }
    return names;
  }

  void create_directories(const Path& folder) override {
    std::shared_ptr<Node> node = root_;
    for (const Path& part : folder.relative_path()) {
      std::shared_ptr<Node>& child = node->children[part.string()];
      if (!child) child = std::make_shared<Node>();
      node = child;
    }
  }

  void rename(const Path& from, const Path& to) override {
    const std::shared_ptr<Node> moved = existing(from);
    const std::shared_ptr<Node> in_the_way = find(to);
    if (in_the_way && !in_the_way->children.empty()) {
      throw FileError("cannot rename " + from.string() + " to " + to.string() + ": Directory not empty");
    }
    existing(from.parent_path())->children.erase(from.filename().string());
    existing(to.parent_path())->children[to.filename().string()] = moved;
  }

  void remove_all(const Path& path) override {
    const std::shared_ptr<Node> removed = find(path);
    if (!removed) return;
    existing(path.parent_path())->children.erase(path.filename().string());
    *removed = Node();  // a disk may forget the content before the name
  }

  void sync_directory(const Path& folder) override {
    const std::shared_ptr<Node> node = existing(folder);
    node->durable_children = node->children;
  }

  std::unique_ptr<FileLock> try_lock(const Path& path) override {
    const std::shared_ptr<Node> node = file_node(path);
    if (node->locked) return nullptr;
    return std::make_unique<Lock>(node);
  }

  /// Everything that was not synced is lost.
  void lose_power() { lose_unsynced(*root_); }

 private:
  struct Node {
    std::string content;
    std::string durable_content;
    std::map<std::string, std::shared_ptr<Node>> children;
    std::map<std::string, std::shared_ptr<Node>> durable_children;
    bool locked = false, is_file = false;
  };

  class Lock : public FileLock {
   public:
    explicit Lock(std::shared_ptr<Node> node) : node_(std::move(node)) { node_->locked = true; }
    ~Lock() override { node_->locked = false; }

   private:
    const std::shared_ptr<Node> node_;
  };

  class File : public WritableFile {
   public:
    explicit File(std::shared_ptr<Node> node) : node_(std::move(node)) {}
    void write(const void* data, size_t bytes) override {
      node_->content.append(static_cast<const char*>(data), bytes);
    }
    void sync() override { node_->durable_content = node_->content; }
    void close() override {}

   private:
    const std::shared_ptr<Node> node_;
  };

  std::shared_ptr<Node> find(const Path& path) const {
    std::shared_ptr<Node> node = root_;
    for (const Path& part : path.relative_path()) {
      const auto child = node->children.find(part.string());
      if (child == node->children.end()) return nullptr;
      node = child->second;
    }
    return node;
  }

  std::shared_ptr<Node> existing(const Path& path) const {
    if (std::shared_ptr<Node> node = find(path)) return node;
    throw FileError("cannot find " + path.string() + ": No such file or directory");
  }

  std::shared_ptr<Node> file_node(const Path& path) {
    std::shared_ptr<Node>& node = existing(path.parent_path())->children[path.filename().string()];
    if (!node) node = std::make_shared<Node>();
    node->is_file = true;
    return node;
  }

  static void lose_unsynced(Node& node) {
    node.content = node.durable_content;
    node.children = node.durable_children;
    for (const auto& [name, child] : node.children) lose_unsynced(*child);
  }

  const std::shared_ptr<Node> root_ = std::make_shared<Node>();
};

}  // namespace dtk::test
