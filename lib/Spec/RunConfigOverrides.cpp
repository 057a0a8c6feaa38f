//===- RunConfigOverrides.cpp - --set section.key=value -------------------===//
//
//   override ::= key ("." key)+ "=" value
//   value    ::= YAML on one line, most often a scalar or [a, b]
//
//===----------------------------------------------------------------------===//

#include "hp/Spec/RunConfig.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

static const char fileName[] = "--set";

/// Puts `value` at `path` below `root`, making maps where there is none.
/// `places` are the places of the keys.
static void setPath(Node &root, llvm::ArrayRef<StringRef> path,
                    llvm::ArrayRef<Location> places, Node value) {
  Node *at = &root;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!at->isMap()) {
      *at = Node();
      at->kind = Node::Kind::Map;
      at->loc = places[i == 0 ? 0 : i - 1];
    }
    auto it = llvm::find_if(
        at->entries, [&](const MapEntry &e) { return e.key == path[i]; });
    if (it == at->entries.end()) {
      Node fresh;
      fresh.loc = places[i];
      at->entries.push_back({path[i].str(), places[i], std::move(fresh)});
      it = std::prev(at->entries.end());
    }
    at = &it->value;
  }
  *at = std::move(value);
}

/// Applies the override `text`, which is line `line` of the "--set" buffer.
static bool applyOverride(Node &root, StringRef text, unsigned line,
                          DiagnosticEngine &diag) {
  auto place = [&](size_t offset) {
    return diag.location(fileName, line, unsigned(offset) + 1);
  };
  size_t equals = text.find('=');
  if (equals == StringRef::npos) {
    return diag.error(place(0)) << "an override is written section.key=value";
  }
  llvm::SmallVector<StringRef> path;
  text.take_front(equals).split(path, '.');
  llvm::SmallVector<Location> places;
  for (StringRef key : path) {
    places.push_back(place(key.begin() - text.begin()));
    if (key.trim() != key || key.empty()) {
      return diag.error(places.back())
             << "an override is written section.key=value, without spaces or "
             << "empty keys";
    }
  }
  if (path.size() < 2) {
    return diag.error(place(0))
           << "an override names a section and a key (section.key=value), not "
           << "only " << quoteForMessage(path[0]);
  }
  if (path.size() > maxDocumentDepth) {
    return diag.error(place(0))
           << "nested deeper than " << maxDocumentDepth << " levels";
  }
  StringRef value = text.drop_front(equals + 1);
  if (value.contains('\n')) {
    return diag.error(place(equals + 1))
           << "the value of an override is a single line";
  }
  if (value.trim().empty()) {
    return diag.error(place(equals + 1))
           << quoteForMessage(text.take_front(equals))
           << " is set to nothing; write "
           << "null or \"\" if that is meant";
  }
  std::optional<Node> node = parseDocument(value, place(equals + 1), diag);
  if (!node) {
    return false;
  }
  setPath(root, path, places, std::move(*node));
  return true;
}

bool hp::applyOverrides(Node &root, llvm::ArrayRef<std::string> overrides,
                        DiagnosticEngine &diag) {
  if (overrides.empty()) {
    return true;
  }
  // A line break inside an override is refused below; here it must not shift
  // the lines of those that follow.
  std::string buffer;
  for (const std::string &text : overrides) {
    for (char c : text) {
      buffer += c == '\n' ? ' ' : c;
    }
    buffer += '\n';
  }
  diag.addBuffer(fileName, buffer);
  bool ok = true;
  for (auto [index, text] : llvm::enumerate(overrides)) {
    ok &= applyOverride(root, text, unsigned(index) + 1, diag);
  }
  return ok;
}
