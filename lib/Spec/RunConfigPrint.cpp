//===- RunConfigPrint.cpp - A run configuration as YAML -------------------===//

#include "RunConfigFields.h"

using namespace hp;
using llvm::StringRef;

namespace {

/// Visitor that prints each section and value.
class FieldPrinter {
public:
  explicit FieldPrinter(llvm::raw_ostream &os) : os(os) {}

  template <typename Section> void section(StringRef name, const Section &) {
    os << name << ":\n";
  }

  template <typename T, typename Rule>
  void field(StringRef key, const Located<T> &field, const Rule &) {
    os << "  " << key << ": ";
    print(field.value);
    os << '\n';
  }

private:
  void print(int64_t value) { os << value; }
  void print(double value) { os << formatFloat(value); }
  void print(bool value) { os << (value ? "true" : "false"); }
  void print(const std::optional<double> &value) {
    os << (value ? formatFloat(*value) : "null");
  }
  void print(const std::string &value) {
    if (value.empty()) {
      os << "null";
    } else {
      printScalar(value, os);
    }
  }
  void print(const std::vector<std::string> &values) {
    os << '[';
    StringRef separator;
    for (const std::string &value : values) {
      os << separator;
      printScalar(value, os);
      separator = ", ";
    }
    os << ']';
  }
  void print(const Node &node) { printFlow(node, os); }
  template <typename T>
  requires std::is_enum_v<T>
  void print(T value) { os << spelling(value); }

  llvm::raw_ostream &os;
};

} // namespace

void hp::printRunConfig(const RunConfig &config, llvm::raw_ostream &os) {
  visitFields(FieldPrinter(os), config);
}
