//===- HFConfig.h - Model config from a Hugging Face config.json -*- C++
//-*-===//
//
// Reads the config.json that lies beside published Qwen3.5 weights and gives
// the fields of the model's `config` under the same names, with their places
// in that file. Both forms are read: nested (`text_config` in a
// `model_type: qwen3_5`) and flat (`qwen3_5_text`), with `rope_parameters` or
// the older `rope_theta`, `partial_rotary_factor` and `rope_scaling`.
//
// A field may stand in several of these places; where they differ the file is
// refused, both places named. Also refused is what the model here would
// compute otherwise: another model type or activation, experts, attention
// dropout, a sliding window, quantized weights, a rope type but 'default',
// layer_types that do not list every layer. No size, rope_theta, rms_norm_eps
// or tie_word_embeddings is ever assumed: absence is an error. An explicit
// layer_types wins over full_attention_interval, with a warning if they
// differ. Keys without meaning for training are passed over; keys that nobody
// knows are warned of.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_HFCONFIG_H
#define HP_SPEC_HFCONFIG_H

#include "hp/Spec/Document.h"

namespace hp {

/// The fields that `path` gives, as a Map in a fixed order.
std::optional<Node> readHFConfig(llvm::StringRef path, DiagnosticEngine &diag);

/// The same from a document that was read already.
std::optional<Node> extractHFConfig(const Node &root, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_SPEC_HFCONFIG_H
