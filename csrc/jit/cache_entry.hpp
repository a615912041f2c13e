// An entry of the disk cache: its key, its kernel.json, and whether it is whole.
#pragma once

#include <string>

#include "../util/files.hpp"
#include "../util/object.hpp"
#include "compile.hpp"

namespace deep_gemm::jit {

/// What a kernel is kept under: digest of source, device headers, compiler, options and target. 32 hexadecimal digits.
std::string cache_key(const KernelSource& source, const std::string& target, Output output);

/// As kernel.json and Python call it.
const char* name(Output output);

struct CacheEntry {
    std::string name;
    std::string key;
    std::string target;
    Output output = Output::cubin;
};

// Of the cache's folder the one with all entries; of an entry its kernel.json, and the file with its image.
inline constexpr const char *kEntries = "kernels", *kFacts = "/kernel.json";
std::string image_file(Output output);

/// What kernel.json says of a kernel that is stored now.
std::string facts_json(const CacheEntry& entry, const Compiled& compiled, double seconds);

struct Inspected {
    std::string problem = "";  // what is wrong with an entry; empty where it is whole
    bool missing = false;      // there is no entry
    bool untrusted = false;
    Object facts = {};
    std::string image = "";
    Descriptor directory = Descriptor();
};

/// Reads the entry in `root`, named as its directory is.
Inspected inspect(const std::string& root, const std::string& name, const std::string& key, Output output);

}  // namespace deep_gemm::jit
