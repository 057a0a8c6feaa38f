//===- RunConfigWords.cpp - The words of the configuration's choices ------===//

#include "RunConfigFields.h"

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;

namespace hp {

template <> ArrayRef<Choice<ContextAttention>> choicesOf<ContextAttention>() {
  static const Choice<ContextAttention> choices[] = {
      {"ring", ContextAttention::Ring},
      {"allgather", ContextAttention::AllGather},
      {"alltoall", ContextAttention::AllToAll}};
  return choices;
}

template <> ArrayRef<Choice<ContextLinear>> choicesOf<ContextLinear>() {
  static const Choice<ContextLinear> choices[] = {
      {"state", ContextLinear::State}, {"alltoall", ContextLinear::AllToAll}};
  return choices;
}

template <> ArrayRef<Choice<Reshard>> choicesOf<Reshard>() {
  static const Choice<Reshard> choices[] = {{"default", Reshard::Default},
                                            {"always", Reshard::Always},
                                            {"never", Reshard::Never}};
  return choices;
}

template <> ArrayRef<Choice<InitMethod>> choicesOf<InitMethod>() {
  static const Choice<InitMethod> choices[] = {{"philox", InitMethod::Philox},
                                               {"torch", InitMethod::Torch},
                                               {"normal", InitMethod::Normal}};
  return choices;
}

template <> ArrayRef<Choice<Precision>> choicesOf<Precision>() {
  static const Choice<Precision> choices[] = {
      {"float32", Precision::Float32},
      {"float64", Precision::Float64},
      {"bfloat16", Precision::Float32,
       "bfloat16 is not supported yet; write float32"},
      {"float16", Precision::Float32,
       "float16 is not supported; write float32"}};
  return choices;
}

template <> ArrayRef<Choice<LossKind>> choicesOf<LossKind>() {
  static const Choice<LossKind> choices[] = {
      {"cross_entropy", LossKind::CrossEntropy}};
  return choices;
}

template <> ArrayRef<Choice<OptimizerKind>> choicesOf<OptimizerKind>() {
  static const Choice<OptimizerKind> choices[] = {
      {"AdamW", OptimizerKind::AdamW}};
  return choices;
}

template <> ArrayRef<Choice<Decay>> choicesOf<Decay>() {
  static const Choice<Decay> choices[] = {{"none", Decay::None},
                                          {"linear", Decay::Linear},
                                          {"cosine", Decay::Cosine}};
  return choices;
}

template <> ArrayRef<Choice<Recompute>> choicesOf<Recompute>() {
  static const Choice<Recompute> choices[] = {
      {"none", Recompute::None},
      {"full", Recompute::Full},
      {"selective", Recompute::Selective}};
  return choices;
}

template <> ArrayRef<Choice<DataFormat>> choicesOf<DataFormat>() {
  static const Choice<DataFormat> choices[] = {{"text", DataFormat::Text},
                                               {"tokens", DataFormat::Tokens}};
  return choices;
}

template <> ArrayRef<Choice<TokenType>> choicesOf<TokenType>() {
  static const Choice<TokenType> choices[] = {{"uint16", TokenType::UInt16},
                                              {"uint32", TokenType::UInt32}};
  return choices;
}

template <> ArrayRef<Choice<DataLayout>> choicesOf<DataLayout>() {
  static const Choice<DataLayout> choices[] = {{"stream", DataLayout::Stream},
                                               {"rows", DataLayout::Rows}};
  return choices;
}

} // namespace hp

template <typename T> static StringRef nameOf(T value) {
  for (const Choice<T> &choice : choicesOf<T>()) {
    if (choice.value == value) {
      return choice.name;
    }
  }
  return {};
}

StringRef hp::spelling(ContextAttention value) { return nameOf(value); }
StringRef hp::spelling(ContextLinear value) { return nameOf(value); }
StringRef hp::spelling(Reshard value) { return nameOf(value); }
StringRef hp::spelling(InitMethod value) { return nameOf(value); }
StringRef hp::spelling(Precision value) { return nameOf(value); }
StringRef hp::spelling(LossKind value) { return nameOf(value); }
StringRef hp::spelling(OptimizerKind value) { return nameOf(value); }
StringRef hp::spelling(Decay value) { return nameOf(value); }
StringRef hp::spelling(Recompute value) { return nameOf(value); }
StringRef hp::spelling(DataFormat value) { return nameOf(value); }
StringRef hp::spelling(TokenType value) { return nameOf(value); }
StringRef hp::spelling(DataLayout value) { return nameOf(value); }
