// A converted workspace as a checkpoint.
#pragma once

#include <memory>
#include <string>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/turbomind/workspace.h"

namespace lmdeploy {

/// `path`: what the user named; `config` is not of our own layout. All files are looked up and their sizes
/// compared; nothing is read yet. Tensors come out as [out, in], the parts of all ranks joined, rows of q
/// and k in the hub's order; 4-bit ones as f32. Throws Error: kNotFound (a file
/// is missing), kInvalidData (another size), kUnsupported (files that belong to what we cannot do).
std::unique_ptr<Checkpoint> open_workspace(const std::string& path, const WorkspacePaths& paths,
                                           const WorkspaceConfig& config);

}  // namespace lmdeploy
