//===- CheckpointKeys.cpp - Parameters and their checkpoint keys ----------===//

#include "hp/Spec/CheckpointKeys.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

bool hp::matchesStars(StringRef pattern, StringRef text) {
  auto [head, rest] = pattern.split('*');
  if (!pattern.contains('*')) {
    return pattern == text;
  }
  if (!text.consume_front(head)) {
    return false;
  }
  // Between stars the leftmost occurrence leaves most text for what follows.
  while (rest.contains('*')) {
    auto [middle, tail] = rest.split('*');
    size_t at = text.find(middle);
    if (at == StringRef::npos) {
      return false;
    }
    text = text.drop_front(at + middle.size());
    rest = tail;
  }
  return text.ends_with(rest);
}

std::string KeySpelling::keyOf(StringRef param) const {
  for (const KeyRule &rule : rules) {
    if (!matchesStars(rule.param, param)) {
      continue;
    }
    auto [paramHead, paramTail] = StringRef(rule.param).split('*');
    auto [keyHead, keyTail] = StringRef(rule.key).split('*');
    bool hasStar = StringRef(rule.param).contains('*');
    StringRef shared =
        hasStar ? param.drop_front(paramHead.size()).drop_back(paramTail.size())
                : "";
    return (keyHead + shared + keyTail).str();
  }
  return "";
}

const KeySpelling *CheckpointKeys::find(StringRef name) const {
  auto it = llvm::find_if(spellings, [&](const KeySpelling &spelling) {
    return spelling.name == name;
  });
  return it == spellings.end() ? nullptr : &*it;
}

bool CheckpointKeys::keepsFloat32(StringRef param) const {
  return llvm::any_of(float32, [&](const std::string &pattern) {
    return matchesStars(pattern, param);
  });
}

//===----------------------------------------------------------------------===//
// Matching a file
//===----------------------------------------------------------------------===//

/// The spelling under which most of `params` have a key in `present`, the first
/// of equals; null if no parameter has one under any.
static const KeySpelling *findSpelling(llvm::ArrayRef<KeySpelling> spellings,
                                       llvm::ArrayRef<std::string> params,
                                       const llvm::StringSet<> &present) {
  const KeySpelling *best = nullptr;
  size_t most = 0;
  for (const KeySpelling &spelling : spellings) {
    size_t count = llvm::count_if(params, [&](const std::string &param) {
      return present.contains(spelling.keyOf(param));
    });
    if (count > most) {
      best = &spelling;
      most = count;
    }
  }
  return best;
}

KeyMatch CheckpointKeys::match(llvm::ArrayRef<std::string> keys,
                               llvm::ArrayRef<std::string> params,
                               llvm::ArrayRef<TiedKey> ties) const {
  KeyMatch result;
  llvm::StringSet<> present;
  for (const std::string &key : keys) {
    present.insert(key);
  }
  result.spelling = findSpelling(spellings, params, present);
  const KeySpelling *spelling = result.spelling;
  if (!spelling && !spellings.empty()) {
    spelling = &spellings.front(); // to say what is missing
  }
  llvm::StringSet<> used;
  for (const std::string &param : params) {
    std::string key = spelling ? spelling->keyOf(param) : param;
    if (present.contains(key) && used.insert(key).second) {
      result.found.push_back({param, key});
    } else {
      result.missing.push_back({param, key});
    }
  }
  for (const TiedKey &tie : ties) {
    std::string key = spelling ? spelling->keyOf(tie.alias) : tie.alias;
    if (present.contains(key) && used.insert(key).second) {
      result.tied.push_back({tie.target, key});
    }
  }
  for (const std::string &pattern : skipped) {
    result.skipped.push_back({pattern, 0});
  }
  for (const std::string &key : keys) {
    if (used.contains(key)) {
      continue;
    }
    auto it = llvm::find_if(result.skipped, [&](const KeyMatch::Skipped &skip) {
      return matchesStars(skip.pattern, key);
    });
    if (it != result.skipped.end()) {
      ++it->count;
    } else {
      result.unexpected.push_back(key);
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Reporting
//===----------------------------------------------------------------------===//

bool hp::reportKeys(const KeyMatch &match, StringRef file,
                    DiagnosticEngine &diag, size_t limit) {
  if (match.isStrict()) {
    return true;
  }
  Location loc = diag.location(file, 0, 0);
  auto error = diag.error(loc);
  if (!match.spelling) {
    error << "no key of the checkpoint is a parameter of the model";
    if (!match.missing.empty()) {
      error.note({},
                 "the first one expected is '" + match.missing[0].key + "'");
    }
  } else {
    error << "the checkpoint does not fit the model: " << match.missing.size()
          << " missing and " << match.unexpected.size()
          << " unexpected keys, spelled as '" << match.spelling->name << "'";
    for (size_t i = 0; i < std::min(limit, match.missing.size()); ++i) {
      error.note({}, "missing '" + match.missing[i].key + "'");
    }
    if (match.missing.size() > limit) {
      error.note({}, "and " + llvm::Twine(match.missing.size() - limit) +
                         " more missing");
    }
  }
  for (size_t i = 0; i < std::min(limit, match.unexpected.size()); ++i) {
    error.note({}, "unexpected '" + match.unexpected[i] + "'");
  }
  if (match.unexpected.size() > limit) {
    error.note({}, "and " + llvm::Twine(match.unexpected.size() - limit) +
                       " more unexpected");
  }
  return error;
}
