//===- CheckpointKeys.h - Parameters and their checkpoint keys --*- C++ -*-===//
//
// A checkpoint calls a parameter by a key, and there is more than one way to
// spell keys: `model.layers.0.mlp.up_proj.weight` in text-only files,
// `model.language_model.layers.0.mlp.up_proj.weight` in multimodal ones. A spec
// lists the spellings:
//
//   checkpoint:
//     spellings:
//       text: {lm_head.*: lm_head.*, "*": model.*}
//       multimodal: {lm_head.*: lm_head.*, "*": model.language_model.*}
//     skipped: [model.visual.*, mtp.*]
//     float32: ["*.A_log"]
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_CHECKPOINTKEYS_H
#define HP_SPEC_CHECKPOINTKEYS_H

#include "hp/Support/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include <optional>
#include <string>
#include <vector>

namespace hp {

/// Whether `text` is `pattern`, in which each `*` stands for any text.
bool matchesStars(llvm::StringRef pattern, llvm::StringRef text);

/// `lm_head.*: lm_head.*`; each side has one `*`, or neither has.
struct KeyRule {
  std::string param, key;
};

/// One way to spell keys.
struct KeySpelling {
  std::string name;
  std::vector<KeyRule> rules; ///< the first that fits a parameter holds

  /// The key of a parameter; empty if no rule fits.
  std::string keyOf(llvm::StringRef param) const;
};

/// `lm_head.weight` is the same tensor as `embed_tokens.weight`.
struct TiedKey {
  std::string alias, target;
};

/// What the keys of a checkpoint are to a model.
struct KeyMatch {
  struct Entry {
    std::string param, key;
  };
  struct Skipped {
    std::string pattern;
    size_t count;
  };
  /// The spelling that fits most keys; null if no key fits any.
  const KeySpelling *spelling = nullptr;
  /// Parameters that have a key, in the order of the parameters.
  std::vector<Entry> found;
  /// Keys of tied names: their data must be that of the parameter.
  std::vector<Entry> tied;
  /// Parameters without a key; `key` is what is missing.
  std::vector<Entry> missing;
  /// Keys that are no parameter and not known to be skipped, as in the file.
  std::vector<std::string> unexpected;
  /// How many keys each pattern of `skipped` took.
  std::vector<Skipped> skipped;

  /// Whether the file is the model's, key for key. Skipped keys do not count.
  bool isStrict() const {
    return spelling && missing.empty() && unexpected.empty();
  }
};

struct CheckpointKeys {
  std::vector<KeySpelling> spellings; ///< the first is the one to write
  std::vector<std::string> skipped;
  std::vector<std::string> float32;

  const KeySpelling *find(llvm::StringRef name) const;
  /// Whether the parameter is stored in float32 whatever the others are.
  bool keepsFloat32(llvm::StringRef param) const;
  /// Sorts the keys of a file into the fields of a KeyMatch. `params` are full
  /// names.
  KeyMatch match(llvm::ArrayRef<std::string> keys,
                 llvm::ArrayRef<std::string> params,
                 llvm::ArrayRef<TiedKey> ties = {}) const;
};

/// Reports what keeps `match` from being strict, at most `limit` keys of each
/// sort: no key at all fits, missing, unexpected. `file` names the checkpoint.
/// Returns whether nothing does.
bool reportKeys(const KeyMatch &match, llvm::StringRef file,
                DiagnosticEngine &diag, size_t limit = 10);

} // namespace hp

#endif // HP_SPEC_CHECKPOINTKEYS_H
