// Configurations of a kernel in their three forms: values by position (what keys and launches use), the tuner's, with
// the names t0, t1, ... (so that what is stored does not depend on names), and text with the program's own names for
// people.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/bind/kernel_model.h"
#include "runtime/engine/specialise/keys.h"
#include "tuner/configuration.h"

namespace kachel::runtime {

std::string configuration_text(const KernelModel& model, const TunableValues& values);  // "BM=64,BN=128"
// Every tunable once, each with one of its declared values, in any order. kInvalid with a mend.
Result<TunableValues> parse_configuration(const KernelModel& model, std::string_view text);

tuner::Configuration to_configuration(const TunableValues& values);
// False where it is not a configuration of this kernel as it is declared now.
bool from_configuration(const KernelModel& model, const tuner::Configuration& configuration, TunableValues& out);

// All that `conditions` admit for these arguments, in declared order; where values are derived, those of the derived
// space, which depends on the device, the types, the static dimensions and the key alone, best first by its estimate.
// kInvalid, with the conditions, if none is left.
Result<std::vector<TunableValues>> admitted_configurations(const KernelModel& model, const DeviceProperties& device,
                                                           const Point& point, const HostInputs& inputs);
bool is_admitted(const KernelModel& model, const HostInputs& inputs, const TunableValues& values);

}  // namespace kachel::runtime
