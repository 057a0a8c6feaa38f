//===- Document.cpp - One guarded tree from YAML or JSON ------------------===//
//
// yaml-cpp tokenizes and parses; this file listens to its events and builds
// the tree without recursion. An event that is not wanted ends the parse at
// once, which also bounds yaml-cpp's own recursion: it announces each level
// before it descends.
//
//===----------------------------------------------------------------------===//

#include "hp/Spec/Document.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/FileSystem.h"
#include <sstream>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Node
//===----------------------------------------------------------------------===//

const Node *Node::find(StringRef key) const {
  for (const MapEntry &entry : entries) {
    if (entry.key == key) {
      return &entry.value;
    }
  }
  return nullptr;
}

Node *Node::find(StringRef key) {
  return const_cast<Node *>(static_cast<const Node *>(this)->find(key));
}

Node Node::makeScalar(StringRef text, Location loc, bool quoted) {
  Node node;
  node.kind = Kind::Scalar;
  node.loc = loc;
  node.text = text.str();
  node.quoted = quoted;
  return node;
}

//===----------------------------------------------------------------------===//
// The listener
//===----------------------------------------------------------------------===//

namespace {

/// Thrown through yaml-cpp after an error was reported; caught in
/// parseDocument.
struct ParseAborted {};

class TreeBuilder : public YAML::EventHandler {
public:
  TreeBuilder(StringRef text, Location start, DiagnosticEngine &diag)
      : text(text), start(start), diag(diag) {}

  Node takeRoot() { return std::move(root); }

  Location place(const YAML::Mark &mark) const {
    if (mark.is_null()) {
      return start;
    }
    unsigned column = mark.column + (mark.line == 0 ? start.column : 1);
    return {start.file, start.line + mark.line, column};
  }

  /// The text from `mark` on; empty if it lies past the end.
  StringRef textAt(const YAML::Mark &mark) const {
    return mark.pos >= 0 ? text.substr(mark.pos) : StringRef();
  }

  void OnDocumentStart(const YAML::Mark &mark) override {
    if (documents++ > 0) {
      fail(mark, textAt(mark).starts_with("---")
                     ? "more than one document in the text"
                     : "unexpected text after the end of the document");
    }
  }
  void OnDocumentEnd() override {}

  void OnAnchor(const YAML::Mark &mark, const std::string &name) override {
    fail(mark, "anchors are not supported; write the value where it is "
               "needed, or quote the text if '&' is meant");
  }
  void OnAlias(const YAML::Mark &mark, YAML::anchor_t) override {
    fail(mark, aliasMessage);
  }

  void OnNull(const YAML::Mark &mark, YAML::anchor_t) override {
    if (wantsKey()) {
      fail(mark, "a key must be a word, not empty or null");
    }
    Node node;
    bool leftOut = !isNullWord(textAt(mark));
    node.loc = leftOut && inMap() ? levels.back().keyLoc : place(mark);
    add(std::move(node));
  }

  void OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t,
                const std::string &value) override {
    refuseTag(mark, tag);
    bool quoted = tag == "!";
    if (wantsKey()) {
      addKey(mark, value, quoted);
    } else {
      add(Node::makeScalar(value, place(mark), quoted));
    }
  }

  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag,
                       YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, tag, Node::Kind::Sequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark &mark, const std::string &tag,
                  YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, tag, Node::Kind::Map);
  }
  void OnMapEnd() override { close(); }

  /// Reports an exception of yaml-cpp in terms of the text.
  void reportParserError(const YAML::Exception &error) {
    StringRef message = error.msg;
    if (message == YAML::ErrorMsg::UNKNOWN_ANCHOR &&
        textAt(error.mark).starts_with("*")) {
      diag.error(place(error.mark)) << aliasMessage;
      return;
    }
    bool inBrackets = message == YAML::ErrorMsg::END_OF_SEQ_FLOW ||
                      message == YAML::ErrorMsg::END_OF_MAP_FLOW;
    if (!inBrackets || levels.empty()) {
      diag.error(place(error.mark)) << "not valid YAML: " << message;
    } else if (Location open = levels.back().node.loc;
               isClosed(text.substr(levels.back().offset))) {
      diag.error(place(error.mark)).note(open, "the bracket opened here")
          << "',' or a closing bracket is missing here";
    } else {
      diag.error(open) << unclosedMessage;
    }
  }

private:
  static constexpr char aliasMessage[] =
      "aliases are not supported; quote the text if '*' is meant";
  static constexpr char unclosedMessage[] = "this bracket is never closed";

  /// A list or map whose end has not come yet.
  struct Level {
    Node node;
    llvm::StringMap<Location> seen; ///< keys so far
    std::string key;                ///< key that waits for its value
    Location keyLoc;
    bool hasKey = false;
    size_t offset = 0; ///< where it begins in the text
  };

  [[noreturn]] void fail(const YAML::Mark &mark, StringRef message) {
    diag.error(place(mark)) << message;
    throw ParseAborted();
  }

  static bool isNullWord(StringRef rest) {
    for (StringRef word : {"~", "null", "Null", "NULL"}) {
      if (rest.starts_with(word)) {
        rest = rest.drop_front(word.size());
        return rest.empty() || StringRef(" \t\n,]}#").contains(rest.front());
      }
    }
    return false;
  }

  /// Whether `rest` begins with no bracket or with one that is closed. Only
  /// chooses between two messages: comments are not told apart.
  static bool isClosed(StringRef rest) {
    if (rest.empty() || !StringRef("[{").contains(rest.front())) {
      return true;
    }
    size_t depth = 0;
    char quote = 0;
    for (size_t i = 0; i < rest.size(); ++i) {
      char c = rest[i];
      if (quote) {
        i += quote == '"' && c == '\\'; // skips what is escaped
        quote = c == quote ? 0 : quote;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '[' || c == '{') {
        ++depth;
      } else if ((c == ']' || c == '}') && --depth == 0) {
        return true;
      }
    }
    return false;
  }

  void refuseTag(const YAML::Mark &mark, const std::string &tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(mark, "tags are not supported: " + quoteForMessage(tag));
    }
  }

  bool inMap() const {
    return !levels.empty() && levels.back().node.kind == Node::Kind::Map;
  }
  bool wantsKey() const { return inMap() && !levels.back().hasKey; }

  void addKey(const YAML::Mark &mark, const std::string &key, bool quoted) {
    if (key == "<<" && !quoted) {
      fail(mark, "merge keys ('<<') are not supported; write the keys out");
    }
    Level &level = levels.back();
    auto [it, isNew] = level.seen.try_emplace(key, place(mark));
    if (!isNew) {
      diag.error(place(mark)).note(it->second, "first given here")
          << "duplicate key " << quoteForMessage(key);
      throw ParseAborted();
    }
    level.key = key;
    level.keyLoc = place(mark);
    level.hasKey = true;
  }

  void open(const YAML::Mark &mark, const std::string &tag, Node::Kind kind) {
    refuseTag(mark, tag);
    if (wantsKey()) {
      // yaml-cpp takes a bracket without end for a key.
      fail(mark, isClosed(textAt(mark))
                     ? "a key must be a word, not a list or map"
                     : unclosedMessage);
    }
    if (levels.size() == maxDocumentDepth) {
      fail(mark, "nested deeper than " + std::to_string(maxDocumentDepth) +
                     " levels");
    }
    Level &level = levels.emplace_back();
    level.node.kind = kind;
    level.node.loc = place(mark);
    level.offset = mark.pos;
  }

  void close() {
    Node node = std::move(levels.back().node);
    levels.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (levels.empty()) {
      root = std::move(node);
      return;
    }
    Level &level = levels.back();
    if (level.node.kind == Node::Kind::Sequence) {
      level.node.items.push_back(std::move(node));
      return;
    }
    level.node.entries.push_back(
        {std::move(level.key), level.keyLoc, std::move(node)});
    level.hasKey = false;
  }

  StringRef text;
  Location start;
  DiagnosticEngine &diag;
  std::vector<Level> levels;
  Node root;
  unsigned documents = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// The place of byte `offset` of `text`, whose first byte is at `start`.
static Location placeOf(StringRef text, size_t offset, Location start) {
  StringRef before = text.take_front(offset);
  size_t newline = before.rfind('\n');
  if (newline == StringRef::npos) {
    return {start.file, start.line, start.column + unsigned(offset)};
  }
  return {start.file, start.line + unsigned(before.count('\n')),
          unsigned(offset - newline)};
}

/// Checks that `text` is UTF-8 of acceptable size without control characters
/// other than tab and line ends.
static bool checkText(StringRef text, Location start, DiagnosticEngine &diag) {
  if (text.size() > maxDocumentBytes) {
    return diag.error(Location{start.file, 0, 0})
           << "the text is larger than " << maxDocumentBytes << " bytes";
  }
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char c = text[i];
    bool isLineEnd =
        c == '\n' || (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n');
    if ((c < 0x20 && c != '\t' && !isLineEnd) || c == 0x7f) {
      static const char digits[] = "0123456789abcdef";
      return diag.error(placeOf(text, i, start))
             << "control character 0x" << digits[c >> 4] << digits[c & 15]
             << " in the text";
    }
  }
  auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.begin());
  auto *at = begin, *end = begin + text.size();
  if (!llvm::isLegalUTF8String(&at, end)) {
    return diag.error(placeOf(text, at - begin, start))
           << "the text is not valid UTF-8";
  }
  return true;
}

std::optional<Node> hp::parseDocument(StringRef text, Location start,
                                      DiagnosticEngine &diag) {
  text.consume_front("\xef\xbb\xbf");
  if (!checkText(text, start, diag)) {
    return std::nullopt;
  }
  std::string lines;
  lines.reserve(text.size());
  for (char c : text) {
    if (c != '\r') {
      lines += c;
    }
  }
  TreeBuilder builder(lines, start, diag);
  try {
    std::istringstream stream(lines);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      diag.error(start) << "there is nothing in the text";
      return std::nullopt;
    }
    parser.HandleNextDocument(builder);
    return builder.takeRoot();
  } catch (const ParseAborted &) {
    return std::nullopt;
  } catch (const YAML::Exception &error) {
    builder.reportParserError(error);
  } catch (const std::exception &error) {
    diag.error(start) << "not valid YAML: " << error.what();
  }
  return std::nullopt;
}

/// Reads at most `maxDocumentBytes + 1` bytes, so that a device or a pipe
/// without end is refused and not read forever.
static llvm::Expected<std::string> readText(StringRef path) {
  llvm::Expected<llvm::sys::fs::file_t> file =
      llvm::sys::fs::openNativeFileForRead(path);
  if (!file) {
    return file.takeError();
  }
  std::string text(maxDocumentBytes + 1, '\0');
  size_t size = 0;
  llvm::Error failure = llvm::Error::success();
  while (size < text.size()) {
    llvm::Expected<size_t> got = llvm::sys::fs::readNativeFile(
        *file, {text.data() + size, text.size() - size});
    if (!got) {
      failure = llvm::joinErrors(std::move(failure), got.takeError());
      break;
    }
    if (*got == 0) {
      break;
    }
    size += *got;
  }
  llvm::sys::fs::closeFile(*file);
  if (failure) {
    return failure;
  }
  text.resize(size);
  return text;
}

std::optional<Node> hp::readDocument(StringRef path, DiagnosticEngine &diag) {
  llvm::Expected<std::string> text = readText(path);
  if (!text) {
    diag.error() << "cannot read " << quoteForMessage(path) << ": "
                 << llvm::toString(text.takeError());
    return std::nullopt;
  }
  if (text->size() <= maxDocumentBytes) {
    diag.addBuffer(path, *text);
  }
  return parseDocument(*text, diag.location(path, 1, 1), diag);
}
