//===- Ops.cpp - The rows of Ops.def as data ------------------------------===//

#include "hp/IR/Ops.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include <vector>

using namespace hp;
using llvm::StringRef;

static constexpr const char *stageNames[] = {"spec", "annotated", "cp",  "tp",
                                             "ac",   "plan",      "step"};

StringRef hp::name(Stage stage) { return stageNames[unsigned(stage)]; }

std::optional<Stage> hp::parseStage(StringRef name) {
  for (unsigned i = 0; i < std::size(stageNames); ++i) {
    if (name == stageNames[i]) {
      return Stage(i);
    }
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Reading the table
//===----------------------------------------------------------------------===//

/// side ::= factors (`,` factors)*; a side of only spaces has no members, a
/// lone comma separates scalars.
static void parseSide(StringRef text, llvm::SmallVectorImpl<std::string> &out) {
  if (text.trim().empty()) {
    return;
  }
  llvm::SmallVector<StringRef, 6> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    out.push_back(part.trim().str());
  }
}

/// rule ::= variant (`|` variant)*;  variant ::= side `->` side. A variant with
/// nothing after the arrow has one scalar result.
static void parseRule(StringRef text, OpInfo &info) {
  if (text.empty()) {
    return;
  }
  llvm::SmallVector<StringRef, 2> variants;
  text.split(variants, '|');
  for (StringRef variantText : variants) {
    auto [left, right] = variantText.split("->");
    RuleVariant variant;
    parseSide(left, variant.operands);
    parseSide(right, variant.results);
    if (variant.results.empty()) {
      variant.results.push_back("");
    }
    info.variants.push_back(std::move(variant));
  }
}

static void parseAttributes(StringRef text, OpInfo &info) {
  llvm::SmallVector<StringRef, 4> parts;
  text.split(parts, ',', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    auto [name, kind] = part.trim().split(':');
    info.attributes.push_back({name.str(), kind[0], kind.ends_with("?")});
  }
}

static OpInfo makeInfo(OpKind kind, StringRef spelling, OpCategory category,
                       StringRef rule, StringRef whole, Linearity linearity,
                       StringRef diff, StringRef needs, StringRef saved,
                       StringRef cotangents, StringRef storage,
                       StringRef bwdStorage, StringRef flops, Stage first,
                       Stage last, StringRef attributes, StringRef summary) {
  OpInfo info{kind,  spelling, category, {},         whole,   linearity,
              diff,  needs,    saved,    cotangents, storage, bwdStorage,
              flops, first,    last,     {},         summary, rule};
  parseRule(rule, info);
  parseAttributes(attributes, info);
  return info;
}

namespace {
struct Table {
  std::vector<OpInfo> rows;
  llvm::StringMap<OpKind> bySpelling;

  Table() {
#define HP_OP(NAME, SPELLING, CATEGORY, RULE, WHOLE, LINEAR, DIFF, NEEDS,      \
              SAVED, COTANGENTS, STORAGE, BWDSTORAGE, FLOPS, FIRST, LAST,      \
              ATTRIBUTES, SUMMARY)                                             \
  rows.push_back(makeInfo(OpKind::NAME, SPELLING, OpCategory::CATEGORY, RULE,  \
                          WHOLE, Linearity::LINEAR, DIFF, NEEDS, SAVED,        \
                          COTANGENTS, STORAGE, BWDSTORAGE, FLOPS,              \
                          Stage::FIRST, Stage::LAST, ATTRIBUTES, SUMMARY));
#include "hp/IR/Ops.def"
    for (const OpInfo &row : rows) {
      bySpelling[row.spelling] = row.kind;
    }
  }
};
} // namespace

static const Table &table() {
  static const Table instance;
  return instance;
}

const OpInfo &hp::opInfo(OpKind kind) { return table().rows[unsigned(kind)]; }

llvm::ArrayRef<OpInfo> hp::allOps() { return table().rows; }

const OpInfo *hp::findOp(StringRef spelling) {
  auto it = table().bySpelling.find(spelling);
  return it == table().bySpelling.end() ? nullptr : &opInfo(it->second);
}

//===----------------------------------------------------------------------===//
// Questions about a row
//===----------------------------------------------------------------------===//

/// Column letter `index`, the last letter serving all further positions.
static char columnAt(StringRef column, unsigned index) {
  return column.empty() ? '\0'
                        : column[std::min<size_t>(index, column.size() - 1)];
}

/// Positions listed in `column`, `*` being all of `count`.
template <unsigned N>
static llvm::SmallVector<unsigned, N> positions(StringRef column,
                                                unsigned count) {
  llvm::SmallVector<unsigned, N> list;
  if (column == "*") {
    for (unsigned i = 0; i < count; ++i) {
      list.push_back(i);
    }
    return list;
  }
  for (char digit : column) {
    list.push_back(digit - '0');
  }
  return list;
}

llvm::SmallVector<unsigned, 6>
OpInfo::diffOperands(unsigned numOperands) const {
  return positions<6>(diff, numOperands);
}

bool OpInfo::needsValue(unsigned index) const {
  return columnAt(needs, index) == 'v';
}

llvm::SmallVector<unsigned, 2> OpInfo::savedResults() const {
  return positions<2>(saved, 0);
}

llvm::SmallVector<unsigned, 3>
OpInfo::cotangentResults(unsigned numResults) const {
  return positions<3>(cotangents, numResults);
}

std::optional<unsigned> OpInfo::viewOf(unsigned index) const {
  char mark = columnAt(storage, index);
  if (mark >= '0' && mark <= '9') {
    return mark - '0';
  }
  return std::nullopt;
}

bool OpInfo::passesCotangent(unsigned index) const {
  return columnAt(bwdStorage, index) == 'c';
}

std::string OpInfo::wholeFactors(const RuleVariant &variant) const {
  auto takesBlocks = [](const RuleVariant &candidate) {
    bool blocks = false, sequence = false;
    for (const std::string &side : candidate.operands) {
      blocks |= StringRef(side).contains('n');
      sequence |= StringRef(side).contains('s');
    }
    return blocks && sequence;
  };
  bool needsSequence =
      llvm::any_of(variants, takesBlocks) && !takesBlocks(variant);
  return whole.str() + (needsSequence ? "s" : "");
}

bool OpInfo::canBeRecomputed() const {
  return category == OpCategory::Local || category == OpCategory::View ||
         category == OpCategory::Collective;
}

const AttributeSpec *OpInfo::findAttribute(StringRef name) const {
  static const AttributeSpec recompute{"recompute", 'b', true};
  if (name == recompute.name && canBeRecomputed()) {
    return &recompute;
  }
  for (const AttributeSpec &spec : attributes) {
    if (spec.name == name) {
      return &spec;
    }
  }
  return nullptr;
}
